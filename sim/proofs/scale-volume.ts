// What the links of a large region carry: real cores at both ends, every message through the real
// codec and back, counted in bytes as they lie in a frame (WebSocket adds 2 to 14 a frame).

import {
  decodeAgentMessage,
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../../shared/protocol/codec.ts';
import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';
import type { Wire } from '../world/link.ts';
import { DEMO } from '../world/test-worlds.ts';
import { World } from '../world/world.ts';

/** Prompts of about 4,000 tokens, two thirds of which the turn before has left in a cache. */
export const SCALE_SHAPE: ConversationShape = {
  ...CHAT_SHAPE,
  systemTokens: 600,
  systemShare: 0.5,
  firstTokens: [2_000, 4_000],
  turnTokens: [100, 500],
  answerTokens: [50, 150],
  turns: [2, 6],
  thinkMs: [1_000, 4_000],
};
const TURNS_MEAN = 4;

export interface Volume {
  messages: number;
  bytes: number;
}

export type Kind = AgentMessage['kind'] | RouterMessage['kind'];

/**
 * Counts what passes. Nothing is changed on the way but by the codec, and for a control what agents are
 * told of their pace.
 */
export class CountingWire implements Wire {
  readonly #paceMs: number | null;
  readonly volumes = new Map<Kind, Volume>();
  /** Largest frame, bytes. */
  largest = 0;

  constructor(paceMs: number | null) {
    this.#paceMs = paceMs;
  }

  agentMessage(message: AgentMessage): AgentMessage {
    const frame = encodeAgentMessage(message);
    this.#count(message.kind, frame.length);
    const decoded = decodeAgentMessage(frame);
    if (!decoded.ok) throw new Error(`${message.kind}: ${decoded.detail}`);
    return decoded.message;
  }

  routerMessage(message: RouterMessage): RouterMessage {
    const frame = encodeRouterMessage(message);
    this.#count(message.kind, frame.length);
    const decoded = decodeRouterMessage(frame);
    if (!decoded.ok) throw new Error(`${message.kind}: ${decoded.detail}`);
    if (this.#paceMs === null || decoded.message.kind !== 'pace') return decoded.message;
    return { ...decoded.message, minReportIntervalMs: this.#paceMs };
  }

  reset(): void {
    this.volumes.clear();
    this.largest = 0;
  }

  get total(): Volume {
    const total = { messages: 0, bytes: 0 };
    for (const { messages, bytes } of this.volumes.values()) {
      total.messages += messages;
      total.bytes += bytes;
    }
    return total;
  }

  #count(kind: Kind, bytes: number): void {
    const volume = this.volumes.get(kind) ?? { messages: 0, bytes: 0 };
    volume.messages += 1;
    volume.bytes += bytes;
    this.volumes.set(kind, volume);
    this.largest = Math.max(this.largest, bytes);
  }
}

export interface VolumeOptions {
  readonly replicas: number;
  readonly routers: number;
  /** Requests a second at each replica. */
  readonly requestsPerS: number;
  readonly warmMs: number;
  readonly forMs: number;
  readonly seed: number;
  /** Control: another interval than the one that agents are told, ms. */
  readonly paceMs?: number;
  /** Before anything is linked. */
  readonly prepare?: (world: World) => void;
}

export interface VolumeFigures {
  readonly world: World;
  /** When counting began, ms. */
  readonly fromMs: number;
  readonly wire: CountingWire;
  /** Between routers; each is sent by one and heard by another. */
  readonly siblings: Volume;
  readonly requests: number;
  readonly cachedShare: number;
  readonly seconds: number;
}

/** Runs a region and counts from `warmMs` on, for `forMs`. */
export function measureVolume(options: VolumeOptions): VolumeFigures {
  const wire = new CountingWire(options.paceMs ?? null);
  const world = new World({
    seed: options.seed,
    profile: DEMO,
    replicas: options.replicas,
    routers: options.routers,
    agent: { calibration: false },
    wire,
  });
  options.prepare?.(world);
  world.runUntilReady();
  const perS = (options.requestsPerS * options.replicas) / TURNS_MEAN;
  world.clients(SCALE_SHAPE).openLoop(perS);
  world.run(options.warmMs);
  wire.reset();
  const siblings = { ...world.siblings?.sent };
  const fromMs = world.nowMs;
  const before = world.recorder.rows.length;
  world.run(options.forMs);
  const rows = world.recorder.rows.slice(before);
  let prompt = 0;
  let cached = 0;
  for (const { end } of rows) {
    if (end?.kind !== 'complete') continue;
    prompt += end.usage.promptTokens;
    cached += end.usage.cachedTokens ?? 0;
  }
  return {
    world,
    fromMs,
    wire,
    siblings: {
      messages: (world.siblings?.sent.messages ?? 0) - (siblings.messages ?? 0),
      bytes: (world.siblings?.sent.bytes ?? 0) - (siblings.bytes ?? 0),
    },
    requests: rows.length,
    cachedShare: cached / prompt,
    seconds: options.forMs / 1_000,
  };
}
