// Hears the KV events of one rank over ZeroMQ and fetches replays.
//
// It connects, or binds where the engine connects; ZeroMQ itself connects again after a loss. What comes is decoded
// without token ids, collected for `FLUSH_MS` and handed on together, so that a burst costs the core one event.
// What would go beyond `MAX_WAITING` batches, or beyond `MAX_WINDOW_BYTES` of payload a window, is dropped and
// counted: the gap that this makes is found and asked for like any other.
//
// Nothing here is ever fatal: an address that cannot be used is said once, and the engine has no KV events.

import type * as zeromq from 'zeromq';
import { decodeKvFrames, replayRequest } from './engines/kv-events.ts';
import { kvEndpoint } from './kv-endpoint.ts';
import type { KvBatch, KvEventsOptions } from './policy/kv-event.ts';
import type { Logger } from '../shared/runtime/log.ts';
import type { Timers } from '../shared/runtime/timers.ts';

export interface KvListenerDeps {
  readonly options: KvEventsOptions;
  readonly rank: number;
  /** Of the engine: takes a wildcard's place. */
  readonly host: string;
  readonly timers: Timers;
  readonly log: Logger;
  /** As published, in order of arrival. */
  readonly heard: (batches: readonly KvBatch[]) => void;
  /** Of the replay from `fromSeq`; the last call has `done`. */
  readonly replayed: (fromSeq: number, batches: readonly KvBatch[], done: boolean) => void;
  readonly count: (what: KvCount, by: number) => void;
}

/** What is counted: batches heard and replayed, messages that are none, batches dropped, events not known. */
export const KV_COUNTS = ['batch', 'replayed', 'malformed', 'dropped', 'unknown_event'] as const;
export type KvCount = (typeof KV_COUNTS)[number];

const FLUSH_MS = 10;
const MAX_WAITING = 1_024;
const WINDOW_MS = 100;
/** 5 MB a second: a third of a core to decode, and twice what 50,000 tokens a second make in the longest encoding. */
const MAX_WINDOW_BYTES = 512 * 1024;
const RECEIVE_HWM = 10_000;
/** A replay is answered between two batches of the engine. */
const REPLAY_SILENCE_MS = 5_000;
const REPLAY_CHUNK = 256;
/** More than any engine keeps. */
const MAX_REPLAYED = 100_000;
const RECONNECT_MS = 100;
const RECONNECT_MAX_MS = 5_000;

export class KvListener {
  private readonly deps: KvListenerDeps;
  private readonly events: string | null;
  private readonly replays: string | null;
  private zmq: typeof zeromq | null = null;
  private subscriber: zeromq.Subscriber | null = null;
  private dealer: zeromq.Dealer | null = null;
  private waiting: KvBatch[] = [];
  private cancelFlush: (() => void) | null = null;
  private cancelWindow: (() => void) | null = null;
  private windowBytes = 0;
  private asked = 0;
  private lost = false;
  private strange = false;
  private open = true;

  constructor(deps: KvListenerDeps) {
    this.deps = deps;
    const { options, rank, host } = deps;
    this.events = kvEndpoint(options.endpoint, { rank, host, bind: options.bind });
    this.replays =
      options.replay === null ? null : kvEndpoint(options.replay, { rank, host, bind: false });
  }

  /** Resolves when it listens, or has said why it cannot. */
  async start(): Promise<void> {
    try {
      await this.listen();
    } catch (error) {
      // A wrong address or a missing native module: the engine is served without its KV events.
      this.say('error', 'kv events cannot be heard', { reason: messageOf(error) });
      this.close();
    }
  }

  /** Fetches what was published from `fromSeq` on; one at a time, a newer one ends an older. */
  async replay(fromSeq: number): Promise<void> {
    this.asked += 1;
    const { asked } = this;
    this.dealer?.close();
    this.dealer = null;
    try {
      if (this.zmq !== null && this.replays !== null) await this.fetch(this.zmq, fromSeq);
    } catch (error) {
      // No answer: the gap stays, and the core is told so like of a replay that brings nothing.
      if (this.open && asked === this.asked)
        this.say('warn', 'kv replay failed', { fromSeq, reason: messageOf(error) });
    }
    if (this.open && asked === this.asked) this.deps.replayed(fromSeq, [], true);
  }

  close(): void {
    this.open = false;
    this.cancelFlush?.();
    this.cancelWindow?.();
    this.subscriber?.close();
    this.dealer?.close();
    this.subscriber = null;
    this.dealer = null;
  }

  private async listen(): Promise<void> {
    const { options } = this.deps;
    if (this.events === null)
      throw new Error(`no endpoint for a rank above 0: ${options.endpoint}`);
    const zmq = await import('zeromq');
    if (!this.open) return;
    this.zmq = zmq;
    const subscriber = new zmq.Subscriber({
      linger: 0,
      receiveHighWaterMark: RECEIVE_HWM,
      reconnectInterval: RECONNECT_MS,
      reconnectMaxInterval: RECONNECT_MAX_MS,
    });
    this.subscriber = subscriber;
    // Whatever else listens at the address takes the connection too, and then fails at ZeroMQ's greeting.
    subscriber.events.on('handshake', () => this.connected());
    subscriber.events.on('connect:retry', () => this.disconnected());
    if (options.bind) await subscriber.bind(this.events);
    else subscriber.connect(this.events);
    subscriber.subscribe(options.topic);
    void this.receive(subscriber);
  }

  private async receive(subscriber: zeromq.Subscriber): Promise<void> {
    try {
      for await (const frames of subscriber) this.take(frames);
    } catch (error) {
      if (this.open) this.say('error', 'kv events ended', { reason: messageOf(error) });
    }
  }

  private take(frames: readonly Buffer[]): void {
    const { count } = this.deps;
    const full = this.waiting.length >= MAX_WAITING || this.windowBytes > MAX_WINDOW_BYTES;
    this.windowBytes += frames.at(-1)?.length ?? 0;
    this.openWindow();
    if (full) return count('dropped', 1);
    const message = decodeKvFrames(frames, { tokens: false });
    if (message.kind !== 'batch') return this.malformed();
    count('batch', 1);
    if (message.unknownEvents > 0) count('unknown_event', message.unknownEvents);
    this.waiting.push(message.batch);
    this.cancelFlush ??= this.deps.timers.after(FLUSH_MS, () => this.flush());
  }

  private openWindow(): void {
    this.cancelWindow ??= this.deps.timers.after(WINDOW_MS, () => {
      this.cancelWindow = null;
      this.windowBytes = 0;
    });
  }

  private flush(): void {
    this.cancelFlush = null;
    const { waiting } = this;
    this.waiting = [];
    if (waiting.length > 0) this.deps.heard(waiting);
  }

  private async fetch(zmq: typeof zeromq, fromSeq: number): Promise<void> {
    const dealer = new zmq.Dealer({ linger: 0, receiveTimeout: REPLAY_SILENCE_MS, sendTimeout: 0 });
    this.dealer = dealer;
    try {
      dealer.connect(this.replays ?? '');
      await dealer.send(replayRequest(fromSeq));
      await this.collect(dealer, fromSeq);
    } finally {
      if (this.dealer === dealer) this.dealer = null;
      dealer.close();
    }
  }

  private async collect(dealer: zeromq.Dealer, fromSeq: number): Promise<void> {
    const { count, replayed } = this.deps;
    let chunk: KvBatch[] = [];
    for (let messages = 0; messages < MAX_REPLAYED && this.dealer === dealer; messages += 1) {
      const message = decodeKvFrames(await dealer.receive(), { tokens: false });
      if (message.kind === 'malformed') count('malformed', 1);
      if (message.kind === 'batch') chunk.push(message.batch);
      const ended = message.kind === 'end';
      if (chunk.length >= REPLAY_CHUNK || (ended && chunk.length > 0)) {
        count('replayed', chunk.length);
        replayed(fromSeq, chunk, false);
        chunk = [];
      }
      if (ended) return;
    }
  }

  /** Said once a connection. */
  private malformed(): void {
    this.deps.count('malformed', 1);
    if (!this.strange) this.say('warn', 'kv events: what comes is no batch of events', {});
    this.strange = true;
  }

  private connected(): void {
    this.lost = false;
    this.strange = false;
    this.say('info', 'kv events connected', {});
  }

  /** Said once an outage. */
  private disconnected(): void {
    if (this.lost || !this.open) return;
    this.lost = true;
    this.say('warn', 'kv events: nobody answers', {});
  }

  private say(
    level: 'info' | 'warn' | 'error',
    text: string,
    fields: Record<string, unknown>,
  ): void {
    const { rank, options } = this.deps;
    const endpoint = this.events ?? options.endpoint;
    this.deps.log[level]({ endpoint, rank, ...fields }, text);
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
