// One engine of a world: the model (one a data-parallel rank), its process as a scheduler or an operator would treat
// it, and what HTTP would say of it. Answers have the tokens that the workload says, so that the next turn's prompt
// extends them.

import type { ReplicaId } from '../../shared/model/ids.ts';
import type { Usage } from '../../shared/protocol/messages.ts';
import { absentRank } from '../../agent/events.ts';
import type { IdentityResult, RankScrape, ScrapeResult } from '../../agent/events.ts';
import type { EngineEvent } from '../engine/events.ts';
import { EngineModel, type EngineTruth } from '../engine/model.ts';
import { kvCapacityTokens, type EngineProfile } from '../engine/profiles.ts';
import { tokenSequence, type TokenSequence } from '../engine/sequence.ts';
import { tokenize } from '../engine/tokenizer.ts';
import type { WorldContext } from './context.ts';
import { KvFeed } from './kv-feed.ts';
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
  /** Data-parallel rank; 0 unless given. */
  readonly rank?: number;
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
  /** Data-parallel ranks, each with a batch and a KV cache of its own. */
  readonly ranks: number;
  /** It publishes KV events. */
  readonly kvEvents: boolean;
}

/** A call's prompt: what the cache lacked of it when it came, and when its first token came. */
export interface PromptInside {
  readonly rank: number;
  readonly uncached: number;
  readonly cached: number;
  /** Of a preempted call. */
  readonly again: boolean;
  firstTokenMs: number | null;
}

/** First tokens that are kept for `promptsInside`. */
const RECENT = 64;

interface OpenCall {
  readonly call: EngineCall;
  readonly prompt: PromptInside;
  generated: number;
  /** Its KV was given up, and no token has come since. */
  preempted: boolean;
  lastTokenMs: number;
}

export class EngineHost {
  readonly replica: ReplicaId;
  readonly url: string;
  readonly models: readonly EngineModel[];
  /** One a rank; silent where the engine publishes nothing. */
  readonly kvFeeds: readonly KvFeed[];
  /** Packets from routers get lost and their connections hang; an agent beside it notices nothing. */
  unreachable = false;
  readonly #options: EngineHostOptions;
  readonly #context: WorldContext;
  readonly #calls = new Map<string, OpenCall>();
  readonly #recent: PromptInside[] = [];
  #wake: Planned | null = null;
  #probes = 0;

  constructor(options: EngineHostOptions) {
    this.#options = options;
    this.#context = options.context;
    this.replica = options.host as ReplicaId;
    this.url = `http://${options.host}`;
    this.models = Array.from({ length: options.ranks }, (_, rank) => {
      const name = rank === 0 ? options.host : `${options.host}#${rank}`;
      const random = options.context.stream(`${name}/engine`);
      return new EngineModel(options.profile, random, { nowMs: 0, kvEvents: options.kvEvents });
    });
    this.kvFeeds = this.models.map(() => new KvFeed(options.profile.blockTokens));
    this.#arm();
  }

  /** Of rank 0. */
  get model(): EngineModel {
    return this.models[0]!;
  }

  get processAlive(): boolean {
    return this.model.phase !== 'down';
  }

  /** Open calls of routers and agents. */
  get openCalls(): number {
    return this.#calls.size;
  }

  get truth(): EngineTruth {
    return this.truthOf(0);
  }

  truthOf(rank: number): EngineTruth {
    this.#advance();
    return this.models[rank]!.truth(this.#context.timeline.nowMs);
  }

  /**
   * A rank's prompts without a first token, or with one that came at `sinceMs` or later; and those of preempted calls,
   * answers so far included.
   */
  promptsInside(rank: number, sinceMs: number): PromptInside[] {
    this.#advance();
    const recent = this.#recent.filter(({ firstTokenMs }) => (firstTokenMs ?? 0) >= sinceMs);
    const waiting: PromptInside[] = [];
    for (const { prompt, preempted, generated } of this.#calls.values()) {
      const known = prompt.uncached + prompt.cached + generated;
      if (prompt.firstTokenMs === null) waiting.push(prompt);
      else if (preempted)
        waiting.push({ ...prompt, uncached: known, cached: 0, again: true, firstTokenMs: null });
    }
    return [...waiting, ...recent].filter((prompt) => prompt.rank === rank);
  }

  /** Prompt tokens that the cache holds of this prompt. */
  cachedTokens(tokenIds: Uint32Array, salt: string): number {
    const { blockTokens } = this.#options.profile;
    return this.model.cachedTokens(tokenSequence(tokenIds, blockTokens, { salt }));
  }

  call(call: EngineCall): void {
    this.#advance();
    const sequence = this.#sequence(call);
    const answerTokens = call.answerIds.length;
    const nowMs = this.#context.timeline.nowMs;
    const request = { id: call.id, sequence, answerTokens, finishReason: 'length' } as const;
    const model = this.#modelOf(call);
    const cached = model.cachedTokens(sequence);
    const uncached = sequence.promptTokens - cached;
    const prompt = { rank: call.rank ?? 0, uncached, cached, again: false, firstTokenMs: null };
    const result = model.submit(request, nowMs);
    if (result.ok) {
      const state = { generated: 0, preempted: false, lastTokenMs: nowMs };
      this.#calls.set(call.id, { call, prompt, ...state });
    } else if (result.reason === 'not_serving') call.end({ kind: 'refused' });
    else if (result.reason === 'too_long') call.end({ kind: 'clientError', status: 400 });
    else call.end({ kind: 'failed', cause: 'error_event' });
    this.#arm();
  }

  abort(id: string): void {
    this.#advance();
    const open = this.#calls.get(id);
    if (open === undefined) return;
    this.#calls.delete(id);
    this.#modelOf(open.call).abort(id);
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
    const { phase, startedMs } = this.model;
    if (phase === 'loading' || phase === 'down') return { kind: 'refused' };
    return {
      kind: 'ok',
      scrape: {
        startTimeSeconds: this.#options.tellsStartTime ? startSeconds(startedMs) : null,
        ranks: this.models.map(rankScrape),
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
    for (const model of this.models) {
      this.#dispatch(model, model.crash(this.#context.timeline.nowMs), 'reset');
    }
    this.#arm();
  }

  /** The core dies behind a living API server. */
  killCore(): void {
    this.#advance();
    for (const model of this.models) {
      this.#dispatch(model, model.killCore(this.#context.timeline.nowMs), 'error_event');
    }
    this.#arm();
  }

  restart(loadingMs?: number): void {
    if (this.model.phase !== 'down') this.crash();
    for (const model of this.models) model.restart(this.#context.timeline.nowMs, loadingMs);
    this.#arm();
  }

  freeze(): void {
    this.#advance();
    for (const model of this.models) model.freeze(this.#context.timeline.nowMs);
    this.#arm();
  }

  thaw(): void {
    for (const model of this.models) model.thaw(this.#context.timeline.nowMs);
    this.#arm();
  }

  #modelOf(call: EngineCall): EngineModel {
    return this.models[call.rank ?? 0] ?? this.model;
  }

  #sequence(call: EngineCall): TokenSequence {
    const { blockTokens } = this.#options.profile;
    const { salt, answerIds } = call;
    return tokenSequence(call.tokenIds, blockTokens, { salt, answerIds });
  }

  #advance(): void {
    for (const model of this.models) {
      this.#dispatch(model, model.advance(this.#context.timeline.nowMs), 'reset');
    }
  }

  #arm(): void {
    this.#context.timeline.cancel(this.#wake);
    const nextMs = Math.min(...this.models.map((model) => model.nextEventMs() ?? Infinity));
    this.#wake =
      nextMs === Infinity
        ? null
        : this.#context.timeline.at(nextMs, () => {
            this.#advance();
            this.#arm();
          });
  }

  #dispatch(
    model: EngineModel,
    events: readonly EngineEvent[],
    cause: 'reset' | 'error_event',
  ): void {
    for (const event of events) {
      if (event.kind === 'blocks') {
        this.kvFeeds[this.models.indexOf(model)]?.publish(model.incarnation, event.events);
      }
      if (!('id' in event)) continue;
      const open = this.#calls.get(event.id);
      if (open === undefined) continue;
      if (event.kind === 'preempted') {
        open.preempted = true;
        continue;
      }
      if (event.kind === 'token') {
        open.lastTokenMs = event.atMs;
        open.generated = event.index + 1;
        open.preempted = false;
        if (event.index > 0) continue;
        open.prompt.firstTokenMs = event.atMs;
        this.#recent.push(open.prompt);
        if (this.#recent.length > RECENT) this.#recent.shift();
        open.call.firstToken();
        continue;
      }
      this.#calls.delete(event.id);
      if (event.kind === 'failed') open.call.end({ kind: 'failed', cause });
      else if (event.reason === 'abort') open.call.end({ kind: 'failed', cause: 'error_event' });
      else open.call.end({ kind: 'complete', usage: usageOf(event) });
    }
  }
}

function rankScrape(model: EngineModel, rank: number): RankScrape {
  const { stats, profile } = model;
  return {
    ...absentRank(rank),
    running: stats.running,
    waiting: stats.waiting,
    kvUsageRatio: stats.kvUsageRatio,
    kvCapacityTokens: kvCapacityTokens(profile),
    blockTokens: profile.blockTokens,
    asleep: stats.sleepLevel !== null,
    promptTokensTotal: stats.promptTokens,
    computedTokensTotal: stats.computedTokens,
    cachedTokensTotal: stats.cachedTokens,
    generationTokensTotal: stats.generationTokens,
    preemptionsTotal: stats.preemptions,
    firstTokensTotal: stats.timeToFirstToken.count,
    itlSumSeconds: stats.interTokenLatency.sum,
    itlCount: stats.interTokenLatency.count,
  };
}

function usageOf(event: EngineEvent & { kind: 'finished' }): Usage {
  const { promptTokens, cachedTokens, answerTokens } = event;
  return { promptTokens, cachedTokens, completionTokens: answerTokens };
}

/** Unix seconds, as `process_start_time_seconds` has it. */
function startSeconds(startedMs: number): number {
  return 1_750_000_000 + Math.round(startedMs / 10) / 100;
}
