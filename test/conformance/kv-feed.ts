// KV events as they come over ZeroMQ, decoded without the agent's decoder, so that one cannot hide the other's
// mistakes: frames, sequence numbers, msgpack with 64-bit integers kept.

import { Unpackr } from 'msgpackr';
import { Dealer, Subscriber } from 'zeromq';
import { complete } from './generate.ts';
import { freshTokens } from './prompts.ts';
import { eventually } from './run.ts';
import type { ConformanceSubject, SubjectEvents } from './subject.ts';

const unpackr = new Unpackr({ useRecords: false, int64AsType: 'bigint' });
const QUIET_MS = 5_000;

export interface WireEvent {
  readonly type: string;
  readonly block_hashes: readonly (bigint | number)[];
  readonly parent_block_hash: bigint | number | null;
  readonly token_ids: readonly number[];
  readonly block_size: number;
  readonly extra_keys: readonly (readonly unknown[] | null)[] | null;
  readonly lora_name: string | null;
  readonly lora_id: number | null;
}

export interface WireBatch {
  readonly topic: string;
  readonly seq: number;
  readonly payload: Buffer;
  readonly atSeconds: number;
  readonly events: readonly WireEvent[];
  readonly rank: unknown;
}

export function decodePayload(payload: Buffer): {
  atSeconds: number;
  events: WireEvent[];
  rank: unknown;
} {
  const [atSeconds, events, rank] = unpackr.unpack(payload) as [number, WireEvent[], unknown];
  return { atSeconds, events, rank };
}

function batchOf(topic: Buffer, seq: Buffer, payload: Buffer): WireBatch {
  const decoded = decodePayload(payload);
  return { topic: topic.toString('utf8'), seq: Number(seq.readBigInt64BE()), payload, ...decoded };
}

export class KvFeed {
  /** In the order of arrival. */
  readonly batches: WireBatch[] = [];
  readonly #socket = new Subscriber({ linger: 0 });

  /** A feed of that rank that has begun: a first batch has come, of what `nudge` makes the engine do. */
  static async open(
    subject: ConformanceSubject,
    rank = 0,
    nudge: () => Promise<unknown> = () => fillBlock(subject),
  ): Promise<KvFeed> {
    const feed = new KvFeed(eventsOf(subject), rank);
    await eventually('a first batch', async () => {
      if (feed.batches.length > 0) return true;
      await nudge();
      return null;
    });
    return feed;
  }

  private constructor({ publish, topic }: SubjectEvents, rank: number) {
    this.#socket.subscribe(topic);
    this.#socket.connect(portAbove(publish, rank));
    void this.#receive();
  }

  /** Events of all batches from that place on. */
  events(from = 0): WireEvent[] {
    return this.batches.slice(from).flatMap(({ events }) => events);
  }

  /** Waits until the events from that place on are as wanted. */
  until(what: string, from: number, holds: (events: readonly WireEvent[]) => boolean) {
    return eventually(what, () => {
      const events = this.events(from);
      return holds(events) ? events : null;
    });
  }

  close(): void {
    this.#socket.close();
  }

  async #receive(): Promise<void> {
    try {
      for await (const [topic, seq, payload] of this.#socket) {
        if (topic === undefined || seq === undefined || payload === undefined) continue;
        this.batches.push(batchOf(topic, seq, payload));
      }
    } catch (error) {
      if (!this.#socket.closed) throw error;
    }
  }
}

export interface Replay {
  readonly batches: readonly WireBatch[];
  /** Frames of each message behind the empty one, the end's among them. */
  readonly frameCounts: readonly number[];
  /** The last message: sequence and bytes of payload. */
  readonly end: { readonly seq: number; readonly payloadBytes: number };
}

/** What the engine replays from that sequence number on, to its end. */
export async function replayFrom(subject: ConformanceSubject, start: number): Promise<Replay> {
  const socket = new Dealer({ linger: 0, receiveTimeout: QUIET_MS });
  const from = Buffer.alloc(8);
  from.writeBigInt64BE(BigInt(start));
  const batches: WireBatch[] = [];
  const frameCounts: number[] = [];
  try {
    socket.connect(eventsOf(subject).replay);
    await socket.send([Buffer.alloc(0), from]);
    for (;;) {
      const frames = await socket.receive();
      const [empty, topic, seq, payload] = frames;
      frameCounts.push(frames.length - 1);
      if (
        empty?.length !== 0 ||
        topic === undefined ||
        seq === undefined ||
        payload === undefined
      ) {
        throw new Error(`a replay message of ${frames.length} frames`);
      }
      const number = Number(seq.readBigInt64BE());
      if (number === -1) {
        return { batches, frameCounts, end: { seq: number, payloadBytes: payload.length } };
      }
      batches.push(batchOf(topic, seq, payload));
    }
  } finally {
    socket.close();
  }
}

function fillBlock(subject: ConformanceSubject): Promise<unknown> {
  const prompt = freshTokens(subject.sizes.blockTokens + 1);
  return complete(subject, { prompt, tokens: 1 });
}

function portAbove(endpoint: string, rank: number): string {
  return endpoint.replace(/\d+$/, (port) => String(Number(port) + rank));
}

function eventsOf(subject: ConformanceSubject): SubjectEvents {
  if (subject.events === null) throw new Error(`${subject.name} publishes no events`);
  return subject.events;
}
