// By how much several routers together admit more than a bound allows: at every admission of a new conversation the live
// conversations of its replica, as the world knows them, against the bound.
//
//   overrun = (Σ context of live conversations − bound · capacity) ÷ the largest conversation that could begin
//
// The rule promises at most one conversation a router. Nobody enters by age here, and nothing but KV room holds anybody.

import { REGIONAL_DEFAULTS } from '../../shared/model/settings.ts';
import { kvCapacityTokens, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import type { Wire } from './link.ts';
import type { RequestRow } from './recorder.ts';
import { boundSettings, SMALL_KV, type Bound } from './working-set.ts';
import { World } from './world.ts';

const HOUR = 3_600_000;
const BOUND = 0.9;
const TURNS = 6;

/**
 * As many turns each, so that the world knows when one is over; short ones, since what grows later is no admission; and
 * pauses all alike, since who comes back later than nine of ten do is in no working set.
 */
const LIVELY: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [600, 1_400],
  turnTokens: [5, 15],
  answerTokens: [5, 15],
  turns: [TURNS, TURNS],
  thinkMs: [1_800, 1_800],
};
/** Prefill that is hardly worth a move to another replica, and too slow to do without the cache. */
const FAST: EngineProfile = { ...SMALL_KV, linearMsPerToken: 0.05 };
const LARGEST = LIVELY.firstTokens[1] + LIVELY.answerTokens[1];

export interface Overrun {
  readonly admissions: number;
  /** Largest, in conversations; below 0 where the bound was never reached. */
  readonly conversations: number;
}

export interface OverrunOptions {
  readonly seed: number;
  readonly routers: number;
  readonly bound: Bound;
  /** Control: each router believes that it is alone, and hears of no other. */
  readonly alone: boolean;
  readonly forMs: number;
}

export function measureOverrun(options: OverrunOptions): Overrun {
  const { seed, routers, bound, alone, forMs } = options;
  const world = new World({
    ...{ seed, routers, profile: FAST, replicas: 2, wire: alone ? ALONE : null },
    ...(alone ? { siblings: null } : {}),
    router: {
      ...REGIONAL_DEFAULTS,
      ...boundSettings(bound),
      ...{ holdMs: 60_000, newConversationWaitMs: HOUR, queueMaxWaitMs: HOUR },
    },
  });
  world.runUntilReady();
  const limit = BOUND * kvCapacityTokens(SMALL_KV);
  let admissions = 0;
  let most = Number.NEGATIVE_INFINITY;
  for (const router of world.routers) {
    router.onSend = (_, message) => {
      if (message.kind !== 'sent' || (message.chains[0]?.turnEnds.length ?? 0) > 0) return;
      admissions += 1;
      const over = liveTokens(world.recorder.rows, message.replica) - limit;
      most = Math.max(most, over / LARGEST);
    };
  }
  const clients = world.clients(LIVELY);
  clients.closedLoop(20, 2_000);
  world.run(40_000);
  admissions = 0;
  most = Number.NEGATIVE_INFINITY;
  clients.burst(60);
  clients.closedLoop(40, 5_000);
  world.run(forMs);
  return { admissions, conversations: most };
}

const ALONE: Wire = {
  agentMessage: (message) =>
    message.kind === 'report' ? { ...message, report: { ...message.report, routers: 1 } } : message,
  routerMessage: (message) => message,
};

/** Context of the conversations whose turn is open there, or that come back to it; who waits in a router has no place. */
function liveTokens(rows: readonly RequestRow[], replica: string): number {
  const last = new Map<number, RequestRow>();
  for (const row of rows) last.set(row.conversation, row);
  let tokens = 0;
  for (const { replicas, end, turn, promptTokens } of last.values()) {
    if (replicas.at(-1) !== replica) continue;
    if (end?.kind === 'complete' && turn === TURNS - 1) continue;
    tokens += promptTokens + (end?.kind === 'complete' ? end.usage.completionTokens : 0);
  }
  return tokens;
}
