// One engine of a world: the model, its process as a scheduler or an operator would treat it, and what HTTP would say
// of it. Answers have the tokens that the workload says, so that the next turn's prompt extends them.

import type { ReplicaId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import type { IdentityResult, ScrapeResult } from '../../agent/events.ts';
import { EngineModel, type EngineEvent, type EngineTruth } from '../engine/model.ts';
import { kvCapacityTokens, type EngineProfile } from '../engine/profiles.ts';
import { tokenSequence, type TokenSequence } from '../engine/sequence.ts';
import { tokenize } from '../engine/tokenizer.ts';
import type { WorldContext } from './context.ts';
import type { Planned } from './timeline.ts';

export type EngineEnd =
  | { readonly kind: 'complete'; readonly usage: Usage }
  /** Nothing listens. */
  | { readonly kind: 'refused' }
  | { readonly kind: 'clientError'; readonly status: number }
  | { readonly kind: 'failed'; readonly cause: 'reset' | 'error_event' };

/** One request to the engine: `end` is called exactly once, unless it is aborted. */
export interface EngineCall {
  readonly id: string;
  readonly tokenIds: Uint32Array;
  /** One generated token each. */
  readonly answerIds: Uint32Array;
  readonly salt: string;
  firstToken(): void;
  end(end: EngineEnd): void;
}

export interface EngineHostOptions {
  /** host:port, also the replica's id. */
  readonly host: string;
  readonly model: string;
  readonly profile: EngineProfile;
  readonly context: WorldContext;
  /** Expositions carry the process's start time. */
  readonly tellsStartTime: boolean;
}

interface OpenCall {
  readonly call: EngineCall;
  lastTokenMs: number;
}

export class EngineHost {
  readonly replica: ReplicaId;
  readonly url: string;
  readonly model: EngineModel;
  /** Packets from routers get lost and their connections hang; an agent beside it notices nothing. */
  unreachable = false;
  readonly #options: EngineHostOptions;
  readonly #context: WorldContext;
  readonly #calls = new Map<string, OpenCall>();
  #wake: Planned | null = null;
  #probes = 0;

  constructor(options: EngineHostOptions) {
    this.#options = options;
    this.#context = options.context;
    this.replica = options.host as ReplicaId;
    this.url = `http://${options.host}`;
    const random = options.context.stream(`${options.host}/engine`);
    this.model = new EngineModel(options.profile, random, { nowMs: 0 });
    this.#arm();
  }

  get processAlive(): boolean {
    return this.model.phase !== 'down';
  }

  /** Open calls of routers and agents. */
  get openCalls(): number {
    return this.#calls.size;
  }

  get truth(): EngineTruth {
    this.#advance();
    return this.model.truth(this.#context.timeline.nowMs);
  }

  /** Prompt tokens that the cache holds of this prompt. */
  cachedTokens(tokenIds: Uint32Array, salt: string): number {
    const { blockTokens } = this.#options.profile;
    return this.model.cachedTokens(tokenSequence(tokenIds, blockTokens, salt));
  }

  call(call: EngineCall): void {
    this.#advance();
    const sequence = this.#sequence(call);
    const answerTokens = call.answerIds.length;
    const nowMs = this.#context.timeline.nowMs;
    const request = { id: call.id, sequence, answerTokens, finishReason: 'length' } as const;
    const result = this.model.submit(request, nowMs);
    if (result.ok) this.#calls.set(call.id, { call, lastTokenMs: nowMs });
    else if (result.reason === 'not_serving') call.end({ kind: 'refused' });
    else if (result.reason === 'too_long') call.end({ kind: 'clientError', status: 400 });
    else call.end({ kind: 'failed', cause: 'error_event' });
    this.#arm();
  }

  abort(id: string): void {
    this.#advance();
    if (!this.#calls.delete(id)) return;
    this.model.abort(id);
    this.#arm();
  }

  /** Instant of the newest token of an open call. */
  lastTokenMs(id: string): number {
    return this.#calls.get(id)?.lastTokenMs ?? 0;
  }

  /** A generation of one token, as a router's own probe asks for. */
  probe(answer: (ok: boolean) => void): void {
    this.call({
      id: `probe-${this.replica}-${this.#probes++}`,
      tokenIds: this.tokenise(`probe ${this.#probes}`),
      answerIds: new Uint32Array(1),
      salt: '',
      firstToken: () => {},
      end: (end) => answer(end.kind === 'complete'),
    });
  }

  tokenise(text: string): Uint32Array {
    return Uint32Array.from(tokenize(text));
  }

  scrape(): ScrapeResult {
    this.#advance();
    const { model } = this;
    if (model.phase === 'loading' || model.phase === 'down') return { kind: 'refused' };
    const { stats, profile } = model;
    return {
      kind: 'ok',
      scrape: {
        startTimeSeconds: this.#options.tellsStartTime ? startSeconds(model.startedMs) : null,
        ranks: [
          {
            rank: 0,
            running: stats.running,
            waiting: stats.waiting,
            kvUsageRatio: stats.kvUsageRatio,
            kvCapacityTokens: kvCapacityTokens(profile),
            blockTokens: profile.blockTokens,
            asleep: false,
            promptTokensTotal: stats.promptTokens,
            computedTokensTotal: stats.computedTokens,
            cachedTokensTotal: stats.cachedTokens,
            generationTokensTotal: stats.generationTokens,
            preemptionsTotal: stats.preemptions,
            firstTokensTotal: stats.timeToFirstToken.count,
            itlSumSeconds: stats.interTokenLatency.sum,
            itlCount: stats.interTokenLatency.count,
          },
        ],
      },
    };
  }

  identify(): IdentityResult {
    this.#advance();
    const { phase, maxModelLen } = this.model;
    if (phase === 'loading' || phase === 'down') {
      return { kind: 'failed', detail: 'no answer' };
    }
    return {
      kind: 'ok',
      identity: {
        kind: 'vllm',
        version: 'sim',
        models: [{ id: this.#options.model, maxModelLen, loras: [] }],
      },
    };
  }

  /** The process dies; it stays away until `restart`. */
  crash(): void {
    this.#advance();
    this.#dispatch(this.model.crash(this.#context.timeline.nowMs), 'reset');
    this.#arm();
  }

  /** The core dies behind a living API server. */
  killCore(): void {
    this.#advance();
    this.#dispatch(this.model.killCore(this.#context.timeline.nowMs), 'error_event');
    this.#arm();
  }

  restart(loadingMs?: number): void {
    if (this.model.phase !== 'down') this.crash();
    this.model.restart(this.#context.timeline.nowMs, loadingMs);
    this.#arm();
  }

  freeze(): void {
    this.#advance();
    this.model.freeze(this.#context.timeline.nowMs);
    this.#arm();
  }

  thaw(): void {
    this.model.thaw(this.#context.timeline.nowMs);
    this.#arm();
  }

  #sequence(call: EngineCall): TokenSequence {
    const { blockTokens } = this.#options.profile;
    const inner = tokenSequence(call.tokenIds, blockTokens, call.salt);
    let generated = 0;
    return {
      promptTokens: inner.promptTokens,
      promptKey: inner.promptKey,
      blockKey: (index) => inner.blockKey(index),
      append: () => inner.append(call.answerIds[generated++] ?? 0),
    };
  }

  #advance(): void {
    this.#dispatch(this.model.advance(this.#context.timeline.nowMs), 'reset');
  }

  #arm(): void {
    this.#context.timeline.cancel(this.#wake);
    const nextMs = this.model.nextEventMs();
    this.#wake =
      nextMs === null
        ? null
        : this.#context.timeline.at(nextMs, () => {
            this.#advance();
            this.#arm();
          });
  }

  #dispatch(events: readonly EngineEvent[], cause: 'reset' | 'error_event'): void {
    for (const event of events) {
      if (!('id' in event) || event.kind === 'preempted') continue;
      const open = this.#calls.get(event.id);
      if (open === undefined) continue;
      if (event.kind === 'token') {
        open.lastTokenMs = event.atMs;
        if (event.index === 0) open.call.firstToken();
        continue;
      }
      this.#calls.delete(event.id);
      if (event.kind === 'failed') open.call.end({ kind: 'failed', cause });
      else open.call.end({ kind: 'complete', usage: usageOf(event) });
    }
  }
}

function usageOf(event: EngineEvent & { kind: 'finished' }): Usage {
  const { promptTokens, cachedTokens, answerTokens } = event;
  return { promptTokens, cachedTokens, completionTokens: answerTokens };
}

/** Unix seconds, as `process_start_time_seconds` has it. */
function startSeconds(startedMs: number): number {
  return 1_750_000_000 + Math.round(startedMs / 10) / 100;
}
