// A router restarts and every agent links again at once: a hello each, then a full index and a report.
//
// What counts is how long one message holds the event loop, and what all of them cost together.

import type {
  AgentId,
  Incarnation,
  LinkId,
  PoolId,
  ReplicaId,
  RouterId,
} from '../../shared/model/ids.ts';
import {
  decodeAgentMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../../shared/protocol/codec.ts';
import type { AgentMessage } from '../../shared/protocol/messages.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { configOf, reportOf } from '../../router/regional/core.harness.ts';
import { RegionalCore } from '../../router/regional/core.ts';
import type { RouterEvent } from '../../router/regional/events.ts';

export const STORMS: readonly StormShape[] = [
  // 65k tokens of KV cache, and 400k.
  { agents: 1_000, chunks: 550, conversationChunks: 32, indexBytes: 64 << 20 },
  { agents: 1_000, chunks: 3_100, conversationChunks: 32, indexBytes: 256 << 20 },
];

export interface StormShape {
  readonly agents: number;
  /** Chunks that each agent's index holds, in conversations of so many. */
  readonly chunks: number;
  readonly conversationChunks: number;
  readonly indexBytes: number;
}

export interface StormFigures {
  readonly receivedMiB: number;
  readonly cpuMs: number;
  /** Of one message, decoded, applied and answered. */
  readonly messageMsP50: number;
  readonly messageMsP99: number;
  readonly messageMsMax: number;
  readonly indexChunks: number;
  readonly indexMiB: number;
  readonly evictions: number;
}

export function storm(shape: StormShape): StormFigures {
  const core = new RegionalCore({
    routerId: 'router' as RouterId,
    software: 'bench',
    config: configOf({ settings: { prefixIndexBytes: shape.indexBytes } }),
    random: seededRandom(1),
    wallMs: () => 0,
  });
  const frames = Array.from({ length: shape.agents }, (_, k) => framesOf(k, shape));
  let received = 0;
  const times: number[] = [];
  const cpu = process.cpuUsage();
  for (let round = 0; round < 3; round += 1) {
    for (const [k, own] of frames.entries()) {
      const frame = own[round] as Uint8Array;
      received += frame.length;
      const begun = performance.now();
      take(core, `link-${k}` as LinkId, frame);
      times.push(performance.now() - begun);
    }
  }
  const { user, system } = process.cpuUsage(cpu);
  const { index } = core.status(1_000);
  times.sort((a, b) => a - b);
  return {
    receivedMiB: received / 2 ** 20,
    cpuMs: (user + system) / 1_000,
    messageMsP50: times[times.length >> 1] ?? 0,
    messageMsP99: times[Math.floor(0.99 * times.length)] ?? 0,
    messageMsMax: times.at(-1) ?? 0,
    indexChunks: index.chunks,
    indexMiB: index.bytes / 2 ** 20,
    evictions: index.evictions,
  };
}

function take(core: RegionalCore, link: LinkId, frame: Uint8Array): void {
  const decoded = decodeAgentMessage(frame);
  if (!decoded.ok) throw new Error(decoded.detail);
  const { message } = decoded;
  const event: RouterEvent =
    message.kind === 'hello'
      ? { kind: 'linkUp', link, hello: message }
      : { kind: 'message', link, message };
  for (const effect of core.handle(event, 1_000)) {
    if (effect.kind === 'send') encodeRouterMessage(effect.message);
  }
}

function framesOf(k: number, shape: StormShape): Uint8Array[] {
  const replica = `10.1.${k >> 8}.${k & 255}:8000` as ReplicaId;
  const hello: AgentMessage = {
    ...{ kind: 'hello', protocol: [1, 1], features: [], software: 'bench', proofPort: null },
    ...{ agentId: `agent-${k}` as AgentId, pool: 'pool' as PoolId, wallMs: 0 },
    engines: [{ replica, advertiseUrl: `http://${replica}`, ranks: 1 }],
  };
  const incarnation = `${replica}/1` as Incarnation;
  const report = reportOf(replica, { incarnation });
  return [
    hello,
    snapshotOf(k, { replica, incarnation }, shape),
    { kind: 'report', report } as const,
  ].map((message) => encodeAgentMessage(message));
}

function snapshotOf(
  k: number,
  of: { replica: ReplicaId; incarnation: Incarnation },
  shape: StormShape,
): AgentMessage {
  const random = seededRandom(100 + k);
  const word = (): number => Math.floor(random.next() * 2 ** 32);
  const count = Math.max(1, Math.round(shape.chunks / shape.conversationChunks));
  const runs = Array.from({ length: count }, () => ({
    ...{ parentLow: 0, parentHigh: 0, depth: 0 },
    hashes: Uint32Array.from({ length: 2 * shape.conversationChunks }, word),
  }));
  const leaves = runs.map(() => ({
    ...{ hashLow: word(), hashHigh: word() },
    ...{ promptTokens: 4_000, answerTokens: 100 },
  }));
  return { kind: 'prefix', ...of, rank: 0, seq: 0, runs, leaves, evicted: new Uint32Array(0) };
}
