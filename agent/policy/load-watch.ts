// How long an engine's load still takes, and whether it only ever dies.
//
//   an earlier load was seen whole     its length, less how far this one has come in it: by the stage that the log
//                                      names (stages may be quicker or slower this time), else by the time passed
//   none was, the log gives a ratio    what is left of the stage at its own pace: a lower bound, what follows is unknown
//   neither, or it has died in three loads since it last served               nothing can be said
//
// A supervisor may start an engine again between two looks: another process, or a higher count of restarts, during a
// load is a death too.

import type { LoadProgress } from '../../shared/model/report.ts';
import type { EngineProcess, ProcessEvidence } from '../events.ts';

/** Deaths in load after which it is a loop. */
export const LOOP_DEATHS = 3;
/** A ratio tells a pace only from here on. */
const PACE_RATIO = 0.05;
const PACE_MS = 1_000;
/** Stages remembered of one load; there are fewer kinds. */
const MAX_STAGES = 16;

interface Stage {
  readonly name: string;
  readonly startMs: number;
  endMs: number;
}

interface Load {
  readonly startMs: number;
  readonly stages: Stage[];
}

interface PastLoad {
  readonly ms: number;
  /** Times since its start. */
  readonly stages: readonly Stage[];
}

export class LoadWatch {
  private load: Load | null = null;
  private past: PastLoad | null = null;
  private progress: LoadProgress | null = null;
  private process: EngineProcess | null = null;
  private restarts: number | null = null;
  private died = 0;

  /** Since when it loads; null while it does not. */
  get sinceMs(): number | null {
    return this.load?.startMs ?? null;
  }

  /** Deaths in load since it last served. */
  get deaths(): number {
    return this.died;
  }

  get loops(): boolean {
    return this.died >= LOOP_DEATHS;
  }

  /** A look at an engine that loads. */
  loading(evidence: Omit<ProcessEvidence, 'state'>, nowMs: number): void {
    if (this.load !== null) this.noteDeaths(evidence, nowMs);
    this.load ??= { startMs: nowMs, stages: [] };
    this.remember(evidence);
    this.progress = evidence.progress;
    if (evidence.progress !== null) noteStage(this.load, evidence.progress.stage, nowMs);
  }

  /** Its process is gone. */
  gone(): void {
    if (this.load !== null) this.died += 1;
    this.end();
  }

  /** Its port opens. */
  served(nowMs: number): void {
    const { load } = this;
    if (load !== null) this.past = pastOf(load, nowMs);
    this.died = 0;
    this.end();
  }

  /** It does not load any more, for whatever other reason. */
  end(): void {
    this.load = null;
    this.progress = null;
  }

  etaMs(nowMs: number): number | null {
    const { load, past, progress } = this;
    if (load === null || this.loops || progress?.stage === 'failed') return null;
    if (past === null) return progress === null ? null : paceMs(load, progress, nowMs);
    return Math.max(0, past.ms - comeMs(load, past, { progress, nowMs }));
  }

  private noteDeaths(evidence: Omit<ProcessEvidence, 'state'>, nowMs: number): void {
    const counted = restartsSince(this.restarts, evidence.restarts);
    const deaths = Math.max(counted, isAnother(this.process, evidence.process) ? 1 : 0);
    if (deaths === 0) return;
    this.died += deaths;
    this.load = { startMs: nowMs, stages: [] };
  }

  private remember({ process, restarts }: Omit<ProcessEvidence, 'state'>): void {
    this.process = process ?? this.process;
    this.restarts = restarts ?? this.restarts;
  }
}

function noteStage(load: Load, name: string, nowMs: number): void {
  const last = load.stages.at(-1);
  if (last !== undefined) last.endMs = nowMs;
  if (last?.name === name || load.stages.length >= MAX_STAGES) return;
  load.stages.push({ name, startMs: nowMs, endMs: nowMs });
}

function pastOf(load: Load, nowMs: number): PastLoad {
  const { startMs } = load;
  const last = load.stages.at(-1);
  if (last !== undefined) last.endMs = nowMs;
  const stages = load.stages.map((stage) => ({
    name: stage.name,
    startMs: stage.startMs - startMs,
    endMs: stage.endMs - startMs,
  }));
  return { ms: nowMs - startMs, stages };
}

/** How far into the earlier load this one has come, ms of that one. */
function comeMs(
  load: Load,
  past: PastLoad,
  now: { readonly progress: LoadProgress | null; readonly nowMs: number },
): number {
  const { progress, nowMs } = now;
  const then = past.stages.find(({ name }) => name === progress?.stage);
  const since = load.stages.find(({ name }) => name === progress?.stage)?.startMs;
  if (progress === null || then === undefined || since === undefined) return nowMs - load.startMs;
  const lengthMs = then.endMs - then.startMs;
  const inside = progress.ratio === null ? nowMs - since : progress.ratio * lengthMs;
  return then.startMs + Math.min(inside, lengthMs);
}

function paceMs(load: Load, { stage, ratio }: LoadProgress, nowMs: number): number | null {
  const since = load.stages.find(({ name }) => name === stage)?.startMs;
  if (since === undefined || ratio === null || ratio < PACE_RATIO || ratio >= 1) return null;
  const tookMs = nowMs - since;
  return tookMs < PACE_MS ? null : (tookMs * (1 - ratio)) / ratio;
}

function isAnother(before: EngineProcess | null, now: EngineProcess | null): boolean {
  if (before === null || now === null) return false;
  return before.source === now.source && before.pid !== now.pid;
}

function restartsSince(before: number | null, now: number | null): number {
  return before === null || now === null ? 0 : Math.max(0, now - before);
}
