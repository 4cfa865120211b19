// The requests inside an SGLang and when each came, was scheduled and showed its first token, counted as they go. Times in
// ms of the engine's clock.

import type { EngineDriver } from '../driver.ts';
import type { GenerationListener, GenerationRun } from '../generation.ts';
import type { StepFacts } from '../../step-facts.ts';
import type { SglangFrontStats, SglangRankStats } from './stats.ts';

interface Inside {
  /** As the client named it, or the server. */
  readonly rid: string;
  readonly run: GenerationRun;
  readonly answer: GenerationListener;
  readonly arrivedMs: number;
  scheduledMs: number | null;
}

export class SglangRequests {
  readonly #open = new Map<string, Inside>();
  readonly #front: SglangFrontStats;

  constructor(front: SglangFrontStats) {
    this.#front = front;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Those that no step has admitted yet. */
  waitingOn(engine: EngineDriver): number {
    let count = 0;
    for (const { run, scheduledMs } of this.#open.values()) {
      if (run.driver === engine && scheduledMs === null) count += 1;
    }
    return count;
  }

  add(request: Omit<Inside, 'scheduledMs'>): void {
    this.#open.set(request.run.plan.id, { ...request, scheduledMs: null });
  }

  /** False when it was not inside any more. */
  remove(run: GenerationRun): boolean {
    return this.#open.delete(run.plan.id);
  }

  /** Ends those of that id, or all, where they are: with reason `abort`. How many there were. */
  abort(rid: string | null): number {
    const ended = [...this.#open.values()].filter((each) => rid === null || each.rid === rid);
    for (const { run, answer } of ended) {
      run.abort();
      this.remove(run);
      for (const choice of run.choices) choice.finish ??= 'abort';
      answer.ended();
    }
    return ended.length;
  }

  /** A step ended that had begun with these requests admitted. */
  admitted({ admittedIds, startMs }: StepFacts, rank: SglangRankStats): void {
    for (const id of admittedIds) {
      const inside = this.#open.get(id.slice(0, id.lastIndexOf('.')));
      if (inside === undefined || inside.scheduledMs !== null) continue;
      inside.scheduledMs = startMs;
      rank.queueSeconds.observe((startMs - inside.arrivedMs) / 1_000);
    }
  }

  /** Counts what the answer's own listener is told. */
  counted(
    run: GenerationRun,
    { rank, stream }: { readonly rank: SglangRankStats; readonly stream: boolean },
    answer: GenerationListener,
  ): GenerationListener {
    const inside = this.#open.get(run.plan.id);
    const nowMs = (): number => run.driver.nowMs();
    const arrivedMs = inside?.arrivedMs ?? nowMs();
    const secondsSince = (sinceMs: number): number => (nowMs() - sinceMs) / 1_000;
    let lastMs = arrivedMs;
    return {
      token: (choice, piece) => {
        if (piece.index === 0 && choice.index === 0) {
          const scheduledMs = inside?.scheduledMs ?? arrivedMs;
          rank.processSeconds.observe((scheduledMs - arrivedMs) / 1_000);
          rank.prefillSeconds.observe((nowMs() - scheduledMs) / 1_000);
        }
        if (stream && choice.index === 0) {
          if (piece.index === 0) this.#front.firstTokenSeconds.observe(secondsSince(arrivedMs));
          else this.#front.tokenSeconds.observe(secondsSince(lastMs));
          lastMs = nowMs();
        }
        answer.token(choice, piece);
      },
      ended: () => {
        this.remove(run);
        if (!stream) this.#front.firstTokenSeconds.observe(secondsSince(arrivedMs));
        this.#countEnd(run, secondsSince(arrivedMs));
        answer.ended();
      },
      failed: () => {
        this.remove(run);
        answer.failed();
      },
    };
  }

  #countEnd({ choices }: GenerationRun, totalSeconds: number): void {
    for (const { promptTokens, cachedTokens, tokens } of choices) {
      this.#front.countEnd({ promptTokens, cachedTokens, generatedTokens: tokens, totalSeconds });
    }
  }
}
