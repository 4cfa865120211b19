// Publishes KV events over ZeroMQ as an engine does: PUB `[topic, seq, payload]` with seq in eight bytes from 0, and a
// ROUTER that replays the last batches from a seq on, then seq −1 with an empty payload.
//
// PUB binds where the endpoint has a wildcard or is a local one, else it connects: then somebody else binds.
// What subscribers miss is their loss: nothing waits for them.

import { Publisher, Router } from 'zeromq';

import { systemTimers } from '../../../shared/runtime/timers.ts';

/** vLLM's `--kv-events-config`, its defaults filled in. */
export interface KvEventsConfig {
  readonly endpoint: string;
  readonly replayEndpoint: string | null;
  /** Batches kept for replay. */
  readonly bufferSteps: number;
  readonly hwm: number;
  /** Batches that may wait to be sent. */
  readonly maxQueueSize: number;
  readonly topic: string;
}

const END_SEQ = Buffer.alloc(8, 0xff);
const EMPTY = Buffer.alloc(0);
const RETRY_MS = 50;
const RETRIES = 100;

interface Batch {
  readonly seq: Buffer;
  readonly payload: Buffer;
}

export class KvPublisher {
  readonly #config: KvEventsConfig;
  readonly #replaysTopic: boolean;
  readonly #topic: Buffer;
  readonly #publisher: Publisher;
  readonly #router: Router | null;
  readonly #kept = new Map<number, Batch>();
  readonly #waiting: Batch[] = [];
  #sending = false;
  #open = true;
  #nextSeq = 0;
  #dropNext = 0;

  constructor(config: KvEventsConfig, options: { readonly replaysTopic: boolean }) {
    this.#config = config;
    this.#replaysTopic = options.replaysTopic;
    this.#topic = Buffer.from(config.topic, 'utf8');
    this.#publisher = new Publisher({ sendHighWaterMark: config.hwm, linger: 0 });
    this.#router = config.replayEndpoint === null ? null : new Router({ linger: 0 });
  }

  /** Where it can be reached, once it has started; the configured endpoint where it connects. */
  get endpoint(): string {
    return boundEndpoint(this.#publisher) ?? this.#config.endpoint;
  }

  /** As it is configured. */
  get wanted(): string {
    const { endpoint, replayEndpoint } = this.#config;
    return replayEndpoint === null ? endpoint : `${endpoint} and ${replayEndpoint}`;
  }

  get replayEndpoint(): string | null {
    return this.#router === null ? null : boundEndpoint(this.#router);
  }

  async start(): Promise<void> {
    const { endpoint, replayEndpoint } = this.#config;
    if (bindsEndpoint(endpoint)) await this.#bind(this.#publisher, endpoint);
    else this.#publisher.connect(endpoint);
    if (this.#router === null || replayEndpoint === null) return;
    await this.#bind(this.#router, replayEndpoint);
    void this.#serveReplays(this.#router);
  }

  publish(payload: Buffer): void {
    const seq = Buffer.alloc(8);
    seq.writeBigUInt64BE(BigInt(this.#nextSeq));
    const batch = { seq, payload };
    this.#kept.set(this.#nextSeq, batch);
    this.#kept.delete(this.#nextSeq - this.#config.bufferSteps);
    this.#nextSeq += 1;
    if (this.#dropNext > 0) this.#dropNext -= 1;
    else if (this.#waiting.length < this.#config.maxQueueSize) this.#waiting.push(batch);
    if (!this.#sending) void this.#send();
  }

  /** The next `batches` get their sequence numbers and can be replayed, but are not sent. */
  drop(batches: number): void {
    this.#dropNext += batches;
  }

  close(): void {
    this.#open = false;
    this.#publisher.close();
    this.#router?.close();
  }

  async #send(): Promise<void> {
    this.#sending = true;
    try {
      for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
        await this.#publisher.send([this.#topic, next.seq, next.payload]);
      }
    } catch (error) {
      if (this.#open) throw error;
    } finally {
      this.#sending = false;
    }
  }

  async #serveReplays(router: Router): Promise<void> {
    try {
      for await (const frames of router) await this.#replay(router, frames);
    } catch (error) {
      if (this.#open) throw error;
    }
  }

  /** Anything but identity, empty frame and eight bytes is passed over, as an engine does. */
  async #replay(router: Router, frames: readonly Buffer[]): Promise<void> {
    const [identity, , start] = frames;
    if (frames.length !== 3 || identity === undefined || start === undefined) return;
    const from = numberOf(start);
    const topic = this.#replaysTopic ? [this.#topic] : [];
    for (const [seq, batch] of [...this.#kept]) {
      if (BigInt(seq) < from) continue;
      await router.send([identity, EMPTY, ...topic, batch.seq, batch.payload]);
    }
    await router.send([identity, EMPTY, ...(this.#replaysTopic ? [EMPTY] : []), END_SEQ, EMPTY]);
  }

  /**
   * The number may be the closed sockets' of an earlier incarnation for a moment: tried for 5 s of real time, which is
   * what the system takes to let go of it, whatever time the model runs in.
   */
  async #bind(socket: Publisher | Router, endpoint: string): Promise<void> {
    for (let tries = 0; ; tries += 1) {
      try {
        // Its own word for a port of the system's choice is a wildcard.
        await socket.bind(endpoint.replace(/^(tcp:.*):0$/, '$1:*'));
        return;
      } catch (error) {
        if (!isTaken(error) || tries >= RETRIES || !this.#open) throw error;
        await new Promise<void>((resolve) => systemTimers.after(RETRY_MS, resolve));
      }
    }
  }
}

function isTaken(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
}

function bindsEndpoint(endpoint: string): boolean {
  return endpoint.includes('*') || endpoint.includes('::') || /^(ipc|inproc):/.test(endpoint);
}

/** Any local interface can be reached by loopback. */
function boundEndpoint(socket: Publisher | Router): string | null {
  return socket.lastEndpoint?.replace('//0.0.0.0:', '//127.0.0.1:') ?? null;
}

/** Big endian, of any length. */
function numberOf(bytes: Buffer): bigint {
  return BigInt(bytes.length === 0 ? 0 : `0x${bytes.toString('hex')}`);
}

/** A rank's own: ports are counted up, as vLLM does; a port of the system's choice stays that. */
export function endpointOfRank(endpoint: string, rank: number): string {
  if (rank === 0 || endpoint.startsWith('ipc:')) return endpoint;
  if (endpoint.startsWith('inproc:')) return `${endpoint}_dp${rank}`;
  const colon = endpoint.lastIndexOf(':');
  const port = Number(endpoint.slice(colon + 1));
  return port === 0 ? endpoint : `${endpoint.slice(0, colon)}:${port + rank}`;
}
