// The slots of a llama.cpp server: which request each works on and how far it is, and what the server counts of them.
//
// A request takes the free slot of the least number, first come first served. Steps compute prompts in that order, as far
// as each needs; prompt tokens are counted as they are computed, everything else when a prompt or an answer is done.
// Times in ms of the engine's clock.

import type { StepFacts } from '../../step-facts.ts';

/** A request that works in a slot, or waits for one. Lengths in tokens. */
export interface SlotTask {
  readonly id: string;
  readonly number: number;
  readonly promptTokens: number;
  slot: number | null;
  startedMs: number | null;
  firstTokenMs: number | null;
  cachedTokens: number;
  processedTokens: number;
  decodedTokens: number;
}

export interface Timings {
  readonly cache_n: number;
  readonly prompt_n: number;
  readonly prompt_ms: number;
  readonly prompt_per_token_ms: number;
  readonly prompt_per_second: number;
  readonly predicted_n: number;
  readonly predicted_ms: number;
  readonly predicted_per_token_ms: number;
  readonly predicted_per_second: number;
}

/** Since the start, and since the last scrape. */
export class LlamacppCounts {
  promptTokens = 0;
  cachedTokens = 0;
  promptMs = 0;
  predictedTokens = 0;
  predictedMs = 0;
  decodeCalls = 0;
  mostTokens = 0;
  busySlots = 0;
  recent = { promptTokens: 0, promptMs: 0, predictedTokens: 0, predictedMs: 0 };
}

export class SlotTable {
  readonly counts = new LlamacppCounts();
  readonly #tasks = new Map<string, SlotTask>();
  readonly #slots: (SlotTask | null)[];
  #serial = 0;

  constructor(slots: number) {
    this.#slots = Array.from({ length: slots }, () => null);
  }

  /** In the order of their numbers; null where one is free. */
  get slots(): readonly (SlotTask | null)[] {
    return this.#slots;
  }

  get processing(): number {
    return this.#slots.filter((task) => task !== null).length;
  }

  /** Requests that wait for a slot. */
  get deferred(): number {
    return this.#tasks.size - this.processing;
  }

  add(id: string, promptTokens: number): SlotTask {
    this.#serial += 1;
    const task: SlotTask = {
      ...{ id, number: this.#serial, promptTokens, slot: null, startedMs: null },
      ...{ firstTokenMs: null, cachedTokens: 0, processedTokens: 0, decodedTokens: 0 },
    };
    this.#tasks.set(id, task);
    this.#place();
    return task;
  }

  step(step: StepFacts): void {
    for (const id of step.admittedIds) {
      const task = this.#tasks.get(id);
      if (task !== undefined) task.startedMs ??= step.startMs;
    }
    let left = step.prefillTokens;
    for (const task of this.#tasks.values()) {
      if (task.startedMs === null || task.firstTokenMs !== null) continue;
      const tokens = Math.min(left, task.promptTokens - task.processedTokens);
      task.processedTokens += tokens;
      left -= tokens;
    }
    this.counts.promptTokens += step.prefillTokens;
    this.counts.decodeCalls += 1;
    this.counts.busySlots += step.prefillRequests + step.decodes;
  }

  /** Another token of the answer. */
  token(id: string, token: { readonly atMs: number; readonly cachedTokens: number }): void {
    const task = this.#tasks.get(id);
    if (task === undefined) return;
    task.decodedTokens += 1;
    if (task.firstTokenMs !== null) return;
    task.firstTokenMs = token.atMs;
    task.cachedTokens = token.cachedTokens;
    task.processedTokens = task.promptTokens - token.cachedTokens;
    const ms = token.atMs - (task.startedMs ?? token.atMs);
    this.counts.cachedTokens += token.cachedTokens;
    this.counts.promptMs += ms;
    this.counts.recent.promptMs += ms;
    this.counts.recent.promptTokens += task.processedTokens;
  }

  /** It ended or was left; null when it was not there. */
  remove(id: string, atMs: number): SlotTask | null {
    const task = this.#tasks.get(id);
    if (task === undefined) return null;
    this.#tasks.delete(id);
    if (task.slot !== null) this.#slots[task.slot] = null;
    this.#place();
    if (task.firstTokenMs === null) return task;
    const ms = atMs - task.firstTokenMs;
    const { counts } = this;
    counts.predictedTokens += task.decodedTokens;
    counts.predictedMs += ms;
    counts.recent.predictedTokens += task.decodedTokens;
    counts.recent.predictedMs += ms;
    counts.mostTokens = Math.max(counts.mostTokens, task.promptTokens + task.decodedTokens);
    return task;
  }

  /** Who waits longest takes what is free. */
  #place(): void {
    for (const task of this.#tasks.values()) {
      if (task.slot !== null) continue;
      const free = this.#slots.indexOf(null);
      if (free < 0) return;
      task.slot = free;
      this.#slots[free] = task;
    }
  }
}

/** What an answer says of its time. */
export function timingsOf(task: SlotTask, endedMs: number): Timings {
  const firstMs = task.firstTokenMs ?? endedMs;
  const promptMs = firstMs - (task.startedMs ?? firstMs);
  const predictedMs = endedMs - firstMs;
  const rate = (tokens: number, ms: number): number => (ms > 0 ? (tokens / ms) * 1_000 : 0);
  const each = (tokens: number, ms: number): number => (tokens > 0 ? ms / tokens : 0);
  return {
    cache_n: task.cachedTokens,
    prompt_n: task.processedTokens,
    prompt_ms: promptMs,
    prompt_per_token_ms: each(task.processedTokens, promptMs),
    prompt_per_second: rate(task.processedTokens, promptMs),
    predicted_n: task.decodedTokens,
    predicted_ms: predictedMs,
    predicted_per_token_ms: each(task.decodedTokens, predictedMs),
    predicted_per_second: rate(task.decodedTokens, predictedMs),
  };
}
