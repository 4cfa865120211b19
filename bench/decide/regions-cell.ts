// What a decision among regions takes a global router's core, from the request to the chosen region: new conversations
// while home is hot and everybody gives credit, which weigh every region, and later turns, which look up where they live.

import { HmacConversationKeys } from '../../shared/lib/conversation-key.ts';
import type { GlobalAttempt, GlobalEffect } from '../../router/global/events.ts';
import { COMPLETE, GlobalRig, regionOf, turnsOf } from '../../router/global/core.harness.ts';
import { ARM, quantile, round, type Row } from './rows.ts';

const ROUNDS = 8_000;
const WARM_ROUNDS = 8_000;
/** Between two arrivals, ms. */
const GAP_MS = 5;
const REPORT_ROUNDS = 200;

export function regionsRow(regions: number): Row {
  const names = Array.from({ length: regions }, (_, k) => `r${k}`);
  const rig = new GlobalRig({
    regions: names.map((id) => regionOf(id)),
    settings: { spillIntervalMs: 1_000 },
    keys: new HmacConversationKeys('bench'),
  });
  for (const [k, name] of names.entries()) rig.join(name, 10 + k, reportOf(k));
  run(rig, names, WARM_ROUNDS);
  const times = run(rig, names, ROUNDS);
  return {
    ...{ cell: `regions-${regions}`, arm: ARM },
    decisionUsP50: round(quantile(times.fresh, 0.5)),
    decisionUsP99: round(quantile(times.fresh, 0.99)),
    laterTurnUsP50: round(quantile(times.later, 0.5)),
  };
}

function run(rig: GlobalRig, names: readonly string[], rounds: number) {
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
    fresh[k] = timed(rig, 1, k);
    later[k] = timed(rig, 6, k);
  }
  return { fresh: fresh.sort(), later: later.sort() };
}

/** µs of one; it ends at once. */
function timed(rig: GlobalRig, turns: number, k: number): number {
  const request = rig.request({ prompts: [turnsOf(k, turns)] });
  const begun = performance.now();
  const effects = rig.handle({ kind: 'arrived', request });
  const took = 1_000 * (performance.now() - begun);
  rig.end(attemptIn(effects).lease, COMPLETE);
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
