// What becomes of the ranks of one engine: slow prefills and missing GPUs are judged here, and every change is said.

import type { CoreContext } from './core-context.ts';
import type { TargetState } from './core-target.ts';
import type { AgentEngine, AgentEvent } from './events.ts';
import { GpuPresence } from './policy/gpu-presence.ts';
import type { Lifecycle } from './policy/lifecycle.ts';
import type { DegradedReason } from '../shared/model/phase.ts';
import type { GpuSummary } from '../shared/model/report.ts';

type GpusEvent = Extract<AgentEvent, { readonly kind: 'gpus' }>;

export class EngineHealth {
  private readonly context: CoreContext;
  private readonly engine: AgentEngine;
  private readonly lifecycle: Lifecycle;
  private readonly targets: readonly TargetState[];
  private readonly presence = new GpuPresence();
  /** Why each rank was last said to be degraded. */
  private readonly said: (DegradedReason | null)[] = [];
  private saidLoop = false;

  constructor(
    context: CoreContext,
    of: {
      readonly engine: AgentEngine;
      readonly lifecycle: Lifecycle;
      readonly targets: readonly TargetState[];
    },
  ) {
    this.context = context;
    this.engine = of.engine;
    this.lifecycle = of.lifecycle;
    this.targets = of.targets;
  }

  get gpus(): GpuSummary | null {
    return this.presence.summary;
  }

  gpusRead(event: GpusEvent, nowMs: number): void {
    const before = this.presence.missing;
    this.presence.take(event.reading, event.uuids);
    const { missing, summary } = this.presence;
    for (const target of this.targets) target.health.gpu(missing, nowMs);
    if (missing === before) return;
    const fields = { replica: this.engine.replica, lost: summary?.lost ?? 0 };
    if (missing) this.context.log('error', 'gpu_missing', fields);
    else this.context.log('info', 'gpu_back', fields);
  }

  run(nowMs: number): void {
    const ready = this.lifecycle.phase === 'ready';
    for (const target of this.targets) {
      const {
        health,
        cost: { slow },
      } = target;
      if (ready && health.degradedFor === null && slow.isSlow(nowMs)) health.slow(nowMs);
      this.say(target, ready);
    }
  }

  /** Once for each loop. */
  noteLoop(): void {
    const { loops, loadDeaths } = this.lifecycle;
    if (loops && !this.saidLoop) {
      const fields = { replica: this.engine.replica, deaths: loadDeaths };
      this.context.log('error', 'load_loop', fields);
    }
    this.saidLoop = loops;
  }

  private say(target: TargetState, ready: boolean): void {
    const {
      rank,
      health,
      cost: { slow },
    } = target;
    const reason = ready ? health.degradedFor : null;
    const before = this.said[rank] ?? null;
    if (reason === before) return;
    this.said[rank] = reason;
    target.version += 1;
    const fields = { replica: this.engine.replica, rank };
    if (reason !== null) this.context.log('warn', 'degraded', { ...fields, reason });
    else if (ready) {
      slow.reset();
      this.context.log('info', 'recovered', { ...fields, reason: before });
    }
  }
}
