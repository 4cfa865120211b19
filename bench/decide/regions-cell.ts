// What a decision among regions takes a global router's core, from the request to the chosen region: new conversations
// while home is hot and everybody gives credit, which weigh every region, and later turns, which look up where they live.
// With `open` requests that no report has acknowledged and no region has answered: each round one more comes, and the
// oldest ends.

import { HmacConversationKeys } from '../../shared/lib/conversation-key.ts';
import type { GlobalAttempt, GlobalEffect } from '../../router/global/events.ts';
import { COMPLETE, GlobalRig, regionOf, turnsOf } from '../../router/global/core.harness.ts';
import { ARM, quantile, round, type Row } from './rows.ts';

const ROUNDS = 8_000;
const WARM_ROUNDS = 8_000;
/** Between two arrivals, ms. */
const GAP_MS = 5;
const REPORT_ROUNDS = 200;
/** Nothing of what is under way is forgotten meanwhile, ms. */
const KEPT_MS = 3_600_000;

export function regionsRow(regions: number, open = 0): Row {
  const names = Array.from({ length: regions }, (_, k) => `r${k}`);
  const rig = new GlobalRig({
    regions: names.map((id) => regionOf(id)),
    settings: { spillIntervalMs: 1_000, unacknowledgedMs: KEPT_MS },
    keys: new HmacConversationKeys('bench'),
  });
  for (const [k, name] of names.entries()) rig.join(name, 10 + k, reportOf(k));
  const under = new UnderWay(rig, open);
  run({ rig, names, under }, WARM_ROUNDS);
  const times = run({ rig, names, under }, ROUNDS);
  return {
    ...{ cell: `regions-${regions}${open === 0 ? '' : `-open-${open}`}`, arm: ARM },
    decisionUsP50: round(quantile(times.fresh, 0.5)),
    decisionUsP99: round(quantile(times.fresh, 0.99)),
    laterTurnUsP50: round(quantile(times.later, 0.5)),
  };
}

interface Bench {
  readonly rig: GlobalRig;
  readonly names: readonly string[];
  readonly under: UnderWay;
}

function run({ rig, names, under }: Bench, rounds: number) {
  const fresh = new Float64Array(rounds);
  const later = new Float64Array(rounds);
  for (let k = 0; k < rounds; k += 1) {
    rig.pass(GAP_MS);
    if (k % REPORT_ROUNDS === 0) {
      for (const [at, name] of names.entries()) {
        rig.report(name, reportOf(at));
        if (at > 0) rig.grant(name, 10_000);
      }
    }
    fresh[k] = timed(rig, under, { turns: 1, conversation: k });
    later[k] = timed(rig, under, { turns: 6, conversation: k });
  }
  return { fresh: fresh.sort(), later: later.sort() };
}

/** Attempts that nothing has been seen of: so many at a time. */
class UnderWay {
  readonly #rig: GlobalRig;
  readonly #leases: string[] = [];
  readonly #most: number;
  #oldest = 0;

  constructor(rig: GlobalRig, most: number) {
    this.#rig = rig;
    this.#most = most;
    for (let k = 0; k < most; k += 1) {
      const effects = rig.handle({ kind: 'arrived', request: rig.request() });
      this.begun(attemptIn(effects).lease);
    }
  }

  begun(lease: string): void {
    if (this.#leases.length < this.#most) {
      this.#leases.push(lease);
      return;
    }
    const oldest = this.#most === 0 ? lease : this.#leases[this.#oldest];
    this.#leases[this.#oldest] = lease;
    this.#oldest = (this.#oldest + 1) % Math.max(1, this.#most);
    if (oldest !== undefined) this.#rig.end(oldest, COMPLETE);
  }
}

/** µs of one decision. */
function timed(
  rig: GlobalRig,
  under: UnderWay,
  { turns, conversation: k }: { readonly turns: number; readonly conversation: number },
): number {
  const request = rig.request({ prompts: [turnsOf(k, turns)] });
  const begun = performance.now();
  const effects = rig.handle({ kind: 'arrived', request });
  const took = 1_000 * (performance.now() - begun);
  under.begun(attemptIn(effects).lease);
  return took;
}

function attemptIn(effects: readonly GlobalEffect[]): GlobalAttempt {
  for (const effect of effects) if (effect.kind === 'attempt') return effect.attempt;
  throw new Error('no attempt');
}

/** The first, which is home, is hot. */
function reportOf(k: number) {
  return { readyReplicas: 60, waitingPrefillMs: k === 0 ? 60_000 : 6_000 };
}
