// Every report of every agent beside what was true at that instant.

import { prefillMs } from '../../shared/model/cost-curve.ts';
import type { LeaseId } from '../../shared/model/ids.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import type { LeaseFacts, RouterMessage } from '../../shared/protocol/messages.ts';
import type { EngineTruth } from '../engine/model.ts';
import { trueCostCurve } from '../engine/profiles.ts';
import type { EngineHost } from './engine-host.ts';
import type { World } from './world.ts';

export interface Work {
  tokens: number;
  ms: number;
}

export interface Sample {
  readonly atMs: number;
  readonly report: ReplicaReport;
  readonly truth: EngineTruth;
  /** All prompts inside the engine without a first token; those of preempted calls are not among them. */
  readonly inside: Readonly<Work> & { readonly requests: number };
  /** Largest prompt inside the engine without a first token, or with one `lateMs` ago. */
  readonly largest: Readonly<Work>;
  /** Prompts that were sent, passed or ended so short a time ago that the agent may not have heard. */
  readonly onTheWay: Readonly<Work>;
}

export interface WatchOptions {
  /** How long messages travel at most. */
  readonly travelMs: number;
  /** How late an agent may learn of a first token that nobody shows. */
  readonly lateMs: number;
}

/** Calls `look` for each new report, once however many routers it goes to. */
export function watchReports(
  world: World,
  look: (sample: Sample) => void,
  options: Partial<WatchOptions> = {},
): void {
  const { travelMs = 2, lateMs = 0 } = options;
  const tellings = world.routers.map((router) => {
    const told = new Told();
    router.onSend = (_link, message) => told.note(message, world.nowMs);
    return told;
  });
  const seen = new Map<string, number>();
  for (const agent of world.agents) {
    agent.onSend = (_link, message) => {
      if (message.kind !== 'report') return;
      const { report } = message;
      const key = `${report.replica}#${report.rank}`;
      if (seen.get(key) === report.seq) return;
      seen.set(key, report.seq);
      const engine = world.engines.find(({ replica }) => replica === report.replica);
      if (engine === undefined) throw new Error(`a report of nobody: ${report.replica}`);
      const sinceMs = world.nowMs - travelMs;
      const onTheWay = { tokens: 0, ms: 0 };
      for (const told of tellings) {
        for (const facts of told.since(report, sinceMs)) add(onTheWay, engine, facts);
      }
      look({
        atMs: world.nowMs,
        report,
        truth: engine.truthOf(report.rank),
        ...insideOf(engine, { report, sinceMs, lateMs, onTheWay }),
      });
    };
  }
}

function insideOf(
  engine: EngineHost,
  of: {
    readonly report: ReplicaReport;
    readonly sinceMs: number;
    readonly lateMs: number;
    readonly onTheWay: Work;
  },
): Pick<Sample, 'inside' | 'largest' | 'onTheWay'> {
  const { report, sinceMs, lateMs, onTheWay } = of;
  const inside = { tokens: 0, ms: 0, requests: 0 };
  const largest = { tokens: 0, ms: 0 };
  for (const prompt of engine.promptsInside(report.rank, sinceMs - lateMs)) {
    const own = { tokens: 0, ms: 0 };
    add(own, engine, prompt);
    if (prompt.firstTokenMs !== null && prompt.firstTokenMs >= sinceMs) {
      onTheWay.tokens += own.tokens;
      onTheWay.ms += own.ms;
      continue;
    }
    if (prompt.firstTokenMs === null && !prompt.again) {
      inside.requests++;
      add(inside, engine, prompt);
    }
    largest.tokens = Math.max(largest.tokens, own.tokens);
    largest.ms = Math.max(largest.ms, own.ms);
  }
  return { inside, largest, onTheWay };
}

function add(
  work: Work,
  engine: EngineHost,
  prompt: { readonly uncached: number; readonly cached: number },
): void {
  const { profile } = engine.model;
  work.tokens += prompt.uncached;
  work.ms += prefillMs(trueCostCurve(profile), prompt.uncached, prompt.cached) + profile.frontMs;
}

/** What one router has told lately. */
class Told {
  readonly #leases = new Map<LeaseId, LeaseFacts>();
  #recent: { readonly atMs: number; readonly target: string; readonly facts: LeaseFacts }[] = [];

  note(message: RouterMessage, atMs: number): void {
    if (message.kind === 'sent') this.#leases.set(message.lease, message);
    else if (message.kind !== 'firstToken' && message.kind !== 'ended') return;
    const facts = this.#leases.get(message.lease);
    if (message.kind === 'ended') this.#leases.delete(message.lease);
    if (facts === undefined) return;
    this.#recent.push({ atMs, target: `${message.replica}#${message.rank}`, facts });
  }

  since(report: ReplicaReport, sinceMs: number): { uncached: number; cached: number }[] {
    this.#recent = this.#recent.filter(({ atMs }) => atMs >= sinceMs);
    const target = `${report.replica}#${report.rank}`;
    return this.#recent
      .filter((each) => each.target === target)
      .map(({ facts: { uncachedTokens, promptTokens } }) => ({
        uncached: uncachedTokens,
        cached: promptTokens - uncachedTokens,
      }));
  }
}
