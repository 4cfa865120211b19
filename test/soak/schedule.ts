// Which trouble comes next: all of them in an order of chance, and then again in another one.
//
// What ends a process whose memory is judged is left out from `ENDING_UNTIL` on: a life that begins in the half that is
// judged would be judged by its warm-up.

import type { Random } from '../../shared/lib/random.ts';

/** Share of the run. */
export const ENDING_UNTIL = 0.4;

export interface Planned {
  /** It ends a router or an agent. */
  readonly ends: boolean;
}

/** `progress`: share of the run that is over, asked at each draw. */
export function* drawn<T extends Planned>(
  troubles: readonly T[],
  random: Random,
  progress: () => number,
): Generator<T, never> {
  if (troubles.every(({ ends }) => ends)) throw new Error('some trouble has to be left at the end');
  for (;;) {
    const keys = new Map(troubles.map((trouble) => [trouble, random.next()]));
    for (const trouble of troubles.toSorted((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0))) {
      if (!trouble.ends || progress() < ENDING_UNTIL) yield trouble;
    }
  }
}
