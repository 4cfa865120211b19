// The report of one target: every figure dated, and named where it is derived. `null` is unknown.
//
// An engine that shows no load at all has an unknown one: what bypasses the routers could be anything, so what
// waits there is not claimed to be the ledger's part of it.

import type { AgentSettings } from '../shared/model/settings.ts';
import { prefillMs } from '../shared/model/cost-curve.ts';
import type { Incarnation } from '../shared/model/ids.ts';
import type { DegradedReason, Phase } from '../shared/model/phase.ts';
import type {
  GpuSummary,
  LoadProgress,
  ProbeResult,
  QueuedWork,
  ReplicaReport,
} from '../shared/model/report.ts';
import { absentFigures } from './policy/engine-figures.ts';
import type { TargetState } from './core-target.ts';
import type { EngineIdentity } from './events.ts';

/** What the engine, not the rank, knows. */
export interface EngineFacts {
  readonly incarnation: Incarnation | null;
  readonly phase: Phase;
  readonly phaseSinceMs: number;
  readonly degradedFor: DegradedReason | null;
  readonly slowRatio: number | null;
  readonly progress: LoadProgress | null;
  readonly gpus: GpuSummary | null;
  readonly etaMs: number | null;
  readonly identity: EngineIdentity | null;
  readonly probe: ProbeResult | null;
}

export interface LinkFacts {
  readonly routers: number;
  readonly queued: QueuedWork;
}

/** Prompt for which a rate is derived from the curve, tokens. */
const RATE_TOKENS = 2_048;

type Figures = Omit<
  ReplicaReport,
  | 'replica'
  | 'rank'
  | 'incarnation'
  | 'seq'
  | 'phase'
  | 'phaseForMs'
  | 'degradedFor'
  | 'slowRatio'
  | 'progress'
  | 'gpus'
  | 'etaMs'
  | 'probe'
  | 'models'
  | 'revision'
  | 'engine'
  | 'routers'
  | 'queued'
  | 'ackedSeq'
  | 'derived'
  | 'absent'
>;

/** The report but for what differs by router: `ackedSeq` is -1. */
export function buildReport(
  target: TargetState,
  facts: {
    readonly engine: EngineFacts;
    readonly links: LinkFacts;
    readonly settings: AgentSettings;
  },
  nowMs: number,
): ReplicaReport {
  const { engine, links, settings } = facts;
  const derived: string[] = [];
  const figures = figuresOf(target, derived, nowMs);
  return {
    replica: target.replica,
    rank: target.rank,
    incarnation: engine.incarnation,
    seq: target.reportSeq,
    phase: engine.phase,
    phaseForMs: Math.max(0, nowMs - engine.phaseSinceMs),
    degradedFor: engine.degradedFor,
    slowRatio: engine.slowRatio,
    progress: engine.progress,
    gpus: engine.gpus,
    etaMs: engine.etaMs,
    ...figures,
    probe: engine.probe,
    models: engine.identity?.models ?? [],
    revision: settings.revision,
    engine: {
      kind: engine.identity?.kind ?? 'unknown',
      version: engine.identity?.version ?? null,
    },
    routers: links.routers,
    queued: links.queued,
    ackedSeq: -1,
    derived,
    absent: absentFigures(target.scrape?.rank ?? null),
  };
}

function figuresOf(target: TargetState, derived: string[], nowMs: number): Figures {
  const curve = target.cost.curve();
  const waiting = target.backlog.figures(curve, nowMs, target.untold(nowMs));
  const foreign = target.foreignNow(nowMs);
  const meanPrompt = target.meanPromptTokens;
  const foreignTokens = foreign === null ? null : Math.round(foreign.waiting * meanPrompt);
  const open = target.ledger.openRequests();
  const scrape = target.scrape?.rank ?? null;
  const unread = scrape !== null && scrape.running === null && scrape.waiting === null;
  const told = toldWaiting(target, nowMs);
  const runningMax = target.slots.runningMax(nowMs);
  derived.push('waitingPrefillMs', 'largestPrefillMs', 'slotWaitMs', 'workingSetTokens');
  if (told === null) derived.push('waitingPrefillTokens', 'unattributedTokens');
  if (runningMax !== scrape?.runningMax) derived.push('runningMax');
  if (scrape?.derived.includes('kvCapacityTokens') === true) derived.push('kvCapacityTokens');
  if (scrape?.derived.includes('itlSumSeconds') === true) derived.push('itlMs');
  const rate = prefillRate(target);
  if (rate?.derived === true) derived.push('prefillTps');
  return {
    prefillCost: target.cost.known,
    costError: target.cost.errors.figures(),
    waitingPrefillMs: unread ? null : (told?.ms ?? waiting.waitingMs),
    waitingPrefillTokens: unread ? null : Math.round(told?.tokens ?? waiting.waitingTokens),
    unattributedTokens: told?.unattributed ?? foreignTokens,
    largestPrefillMs: waiting.largestMs,
    prefillTps: rate?.tps ?? null,
    slotWaitMs: target.slots.slotWaitMs(open + (foreign?.open ?? 0), nowMs),
    workingSetTokens: whole(target.kv.workingSetTokens(nowMs)),
    itlMs: target.rates.itlMs,
    running: open + (foreign?.open ?? 0),
    runningMax,
    kvUsageRatio: scrape?.kvUsageRatio ?? null,
    kvCapacityTokens: scrape?.kvCapacityTokens ?? null,
    kvCachedTokens: target.hearing.blocks.cachedTokens(scrape?.kvCapacityTokens ?? null),
    blockTokens: scrape?.blockTokens ?? null,
    preemptionsTotal: scrape?.preemptionsTotal ?? null,
    preemptionsPerMin: target.rates.preemptionsPerMin(),
    bytesPerToken: target.ratio.ratio(),
    partTokens: target.ratio.partTokens(),
    kappa: target.trust.kappa,
    scrapeAgoMs: target.scrape === null ? null : Math.max(0, nowMs - target.scrape.sentMs),
    counters: {
      promptTokens: scrape?.promptTokensTotal ?? null,
      generationTokens: scrape?.generationTokensTotal ?? null,
    },
  };
}

function whole(tokens: number | null): number | null {
  return tokens === null ? null : Math.round(tokens);
}

/**
 * What waits where the engine counts it itself: the ledger's, corrected at each scrape. Less than the ledger has is
 * mostly a prefill half done, which the ledger's time allows for already; more is nobody else's work where all requests
 * inside are the ledger's: then hits were fewer than foretold.
 */
function toldWaiting(
  target: TargetState,
  nowMs: number,
): { readonly ms: number; readonly tokens: number; readonly unattributed: number } | null {
  const correction = target.told.correctionTokens();
  if (correction === null) return null;
  const curve = target.cost.curve();
  const { waitingMs, waitingTokens } = target.backlog.figures(curve, nowMs);
  return {
    ms: waitingMs + (correction > 0 ? prefillMs(curve, correction, 0) : 0),
    tokens: Math.max(0, waitingTokens + correction),
    unattributed: target.foreignNow(nowMs)?.open === 0 ? 0 : Math.round(Math.max(0, correction)),
  };
}

/** As the engine counts it, else as seen between first tokens, else a bound, else from the curve. */
function prefillRate(
  target: TargetState,
): { readonly tps: number; readonly derived: boolean } | null {
  const told = target.told.rate();
  if (told?.derived === false) return told;
  const seen = target.cost.busy.tps();
  if (seen !== null) return { tps: seen, derived: false };
  if (told !== null) return told;
  if (target.cost.known === null) return null;
  const ms = prefillMs(target.cost.curve(), RATE_TOKENS, 0);
  return { tps: (RATE_TOKENS * 1_000) / ms, derived: true };
}
