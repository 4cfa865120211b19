// A peer of a link that does what it likes: whole messages, frames cut by hand, bytes that are no WebSocket at all.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Packr } from 'msgpackr';
import { WebSocket } from 'ws';
import type { AgentId, Incarnation, PoolId, ReplicaId } from '../../shared/model/ids.ts';
import { encodeAgentMessage } from '../../shared/protocol/codec.ts';
import type { AgentMessage, Hello, PrefixMessage } from '../../shared/protocol/messages.ts';
import { AGENT_SAMPLES } from '../fixtures/frames/samples.ts';

export const SECRET = 'a-secret-of-this-region';
/** Of the hostile agent: a place on this machine where nothing listens. */
export const ADDRESS = 'http://127.0.0.1:9';
export const REPLICA = '127.0.0.1:9' as ReplicaId;
const LIFE = 'life-1' as Incarnation;

const packr = new Packr({ useRecords: false, variableMapSize: true });

export function packed(value: unknown): Uint8Array {
  return packr.pack(value);
}

export function helloOf(changes: Partial<Hello> | Record<string, unknown> = {}): Hello {
  return {
    kind: 'hello',
    protocol: [1, 1],
    features: [],
    agentId: 'hostile' as AgentId,
    software: 'hostile/1',
    pool: 'default' as PoolId,
    engines: [{ replica: REPLICA, advertiseUrl: ADDRESS, ranks: 1 }],
    proofPort: null,
    wallMs: Date.now(),
    ...changes,
  } as Hello;
}

const sample = AGENT_SAMPLES.find((message) => message.kind === 'report');

/** A report of the hostile agent's replica, whose engine loads for ever, as a good one would be but for `changes`. */
export function reportOf(changes: Record<string, unknown> = {}): AgentMessage {
  if (sample?.kind !== 'report') throw new Error('no report among the samples');
  const own = {
    replica: REPLICA,
    rank: 0,
    seq: 1,
    ackedSeq: 0,
    phase: 'loading',
    degradedFor: null,
  };
  const report = { ...sample.report, ...own, ...changes };
  return { kind: 'report', report } as AgentMessage;
}

export function prefixOf(seq: number, changes: Partial<PrefixMessage> = {}): PrefixMessage {
  return {
    kind: 'prefix',
    replica: REPLICA,
    rank: 0,
    incarnation: LIFE,
    seq,
    runs: [{ parentLow: 0, parentHigh: 0, depth: 0, hashes: Uint32Array.of(1, 2, 3, 4) }],
    leaves: [],
    evicted: new Uint32Array(0),
    ...changes,
  };
}

/** What a link that has ended was closed with: a code, or 1006 where there was none. */
export class HostileLink {
  readonly socket: WebSocket;
  readonly closed: Promise<number>;
  readonly received: Uint8Array[] = [];

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('error', () => undefined);
    socket.on('message', (data) => this.received.push(data as Buffer));
    this.closed = new Promise((resolve) => socket.once('close', (code) => resolve(code)));
  }

  say(message: AgentMessage | PrefixMessage): void {
    this.socket.send(encodeAgentMessage(message));
  }

  throw(bytes: Uint8Array | string): void {
    this.socket.send(bytes);
  }

  /** Bytes past the WebSocket: its own framing. */
  get wire(): Socket {
    return (this.socket as unknown as { _socket: Socket })._socket;
  }

  end(): void {
    this.socket.terminate();
  }
}

export async function dial(port: number, secret: string | null = SECRET): Promise<HostileLink> {
  const headers = secret === null ? {} : { authorization: `Bearer ${secret}` };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/link`, { headers });
  const link = new HostileLink(socket);
  await once(socket, 'open');
  return link;
}

/** The answer to bytes on a plain connection, up to its end. */
export async function answerTo(port: number, bytes: Uint8Array | string): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1' });
  let text = '';
  socket.on('error', () => undefined);
  socket.on('data', (piece: Buffer) => (text += piece.toString('latin1')));
  socket.write(bytes);
  await once(socket, 'close');
  return text;
}

/** The head of a masked frame (the mask is 0) that announces so many bytes. */
export function frameHead(first: number, length: number): Buffer {
  const head = Buffer.alloc(14);
  head[0] = first;
  head[1] = 0x80 | 127;
  head.writeBigUInt64BE(BigInt(length), 2);
  return head;
}

/** A whole small masked frame. */
export function smallFrame(first: number, payload: Uint8Array = new Uint8Array(0)): Buffer {
  return Buffer.concat([Buffer.from([first, 0x80 | payload.length, 0, 0, 0, 0]), payload]);
}
