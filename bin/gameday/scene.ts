// A scene of a game day: something is done to a fleet, and what was expected is set beside what happened.

import type { Timers } from '../../shared/runtime/timers.ts';
import type { Random } from '../../shared/lib/random.ts';
import type { Clock } from '../../shared/runtime/clock.ts';

export interface Fleet {
  /** Of the global router. */
  readonly url: string;
  /** Of a region's own clients; null where it is not known. */
  regionUrl(region: string): string | null;
  /** Null where nobody can do it from here. */
  readonly kill: ((region: string) => void) | null;
}

export interface Scene {
  readonly name: string;
  readonly title: string;
  play(stage: Playing): Promise<void>;
}

export interface Playing {
  readonly fleet: Fleet;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** What is done now. */
  readonly does: (text: string) => void;
  /** One expectation, and what happened. */
  readonly expects: (expected: string, happened: string, held: boolean) => void;
}

/** Resolves after `ms`. */
export function after(ms: number, { timers }: Pick<Playing, 'timers'>): Promise<void> {
  return new Promise((resolve) => {
    timers.after(ms, resolve);
  });
}

/** Whether it came to hold within `ms`; looks again every `everyMs`. */
export async function comesTrue(
  playing: Pick<Playing, 'timers' | 'clock'>,
  limits: { readonly ms: number; readonly everyMs: number },
  holds: () => boolean | Promise<boolean>,
): Promise<boolean> {
  const endMs = playing.clock.nowMs() + limits.ms;
  while (playing.clock.nowMs() < endMs) {
    if (await holds()) return true;
    await after(limits.everyMs, playing);
  }
  return holds();
}

const WORDS = 'river gate flow basin level spill turbine head tail crest sluice weir'.split(' ');

/** About as many tokens: four letters are taken for one. */
export function prompt(tokens: number, random: Random): string {
  let text = '';
  while (text.length < tokens * 4) {
    text += `${WORDS[Math.floor(random.next() * WORDS.length)] ?? ''}${Math.floor(random.next() * 1_000)} `;
  }
  return text;
}

/** `tokyo 12, singapore 3`; those that are no region last. */
export function counted(regions: readonly (string | null)[]): string {
  const counts = new Map<string, number>();
  for (const region of regions) {
    const name = region ?? 'nowhere';
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const parts = [...counts].toSorted(([, a], [, b]) => b - a).map(([name, n]) => `${name} ${n}`);
  return parts.length === 0 ? 'nothing' : parts.join(', ');
}
