// A pool in a regional core's state, as it stands in the middle of a day: every replica has its own learned curve,
// waits, hit rates and KV pressure; all hold a shared system prompt, a few more of it than others, and each request is
// the next turn of a conversation that one replica holds.

import { seededRandom, type Random } from '../../shared/lib/random.ts';
import type {
  AgentId,
  Incarnation,
  LinkId,
  PoolId,
  ReplicaId,
  RequestId,
  RouterId,
} from '../../shared/model/ids.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { RouteRequest } from '../../router/policy/request-events.ts';
import { heard, linkUp } from '../../router/regional/core-links.ts';
import { configOf, MODEL, reportOf } from '../../router/regional/core.harness.ts';
import { RegionalState } from '../../router/regional/core-state.ts';
import { chainOf, segmentOf, type Segment } from '../../sim/workloads/synthetic-prompt.ts';

const BYTES_PER_TOKEN = 4;
/** More than any prompt has. */
const CONTEXT_TOKENS = 262_144;
/** So much that every conversation is found. */
const INDEX_BYTES = 512 << 20;
/** Share of a prompt that is the system prompt of all, and that the next turn adds. */
const SYSTEM_SHARE = 0.15;
const NEW_SHARE = 0.3;

export interface FleetShape {
  readonly replicas: number;
  readonly promptTokens: number;
  /** Distinct conversations, spread over the replicas. */
  readonly conversations: number;
  readonly seed: number;
}

export class Fleet {
  readonly state: RegionalState;
  readonly replicas: number;
  readonly requests: readonly RouteRequest[];
  readonly #random: Random;

  constructor(shape: FleetShape) {
    this.#random = seededRandom(shape.seed);
    this.replicas = shape.replicas;
    this.state = new RegionalState({
      routerId: 'router' as RouterId,
      software: 'bench',
      config: configOf({ settings: { prefixIndexBytes: INDEX_BYTES } }),
      random: this.#random,
      wallMs: () => 0,
    });
    this.state.nowMs = 1_000;
    const talks = talksOf(shape);
    for (let k = 0; k < shape.replicas; k += 1) {
      const held = talks.filter((_, talk) => talk % shape.replicas === k);
      this.#link(k, held.length === 0 ? talks.slice(0, 1) : held);
    }
    this.state.effects = [];
    this.requests = talks.map(({ next }, k) => requestOf(k, next));
  }

  report(k: number): void {
    const report = reportOf(nameOf(k), this.#figures(k));
    heard(this.state, linkOf(k), { kind: 'report', report });
    this.state.effects = [];
  }

  #link(k: number, held: readonly Talk[]): void {
    const replica = nameOf(k) as ReplicaId;
    linkUp(this.state, linkOf(k), {
      kind: 'hello',
      protocol: [1, 1],
      features: [],
      agentId: `agent-${k}` as AgentId,
      software: 'bench',
      pool: 'pool' as PoolId,
      engines: [{ replica, advertiseUrl: `http://${replica}`, ranks: 1 }],
      proofPort: null,
      wallMs: 0,
    });
    this.report(k);
    heard(this.state, linkOf(k), {
      kind: 'prefix',
      replica,
      rank: 0,
      incarnation: `${replica}/1` as Incarnation,
      seq: 0,
      runs: held.map(({ turn }) => ({
        parentLow: 0,
        parentHigh: 0,
        depth: 0,
        hashes: turn.hashes,
      })),
      leaves: held.map(({ turn }) => ({
        hashLow: turn.end.hashLow,
        hashHigh: turn.end.hashHigh,
        promptTokens: Math.round(turn.bytes / BYTES_PER_TOKEN),
        answerTokens: 200,
      })),
      evicted: new Uint32Array(0),
    });
  }

  #figures(k: number): Parameters<typeof reportOf>[1] {
    const of = this.#random;
    const base = 0.8 + 0.4 * ((k * 0.618) % 1);
    return {
      prefillCost: {
        baseMs: 8 * base,
        frontMsPerToken: 0.002,
        linearMsPerToken: 0.06 * base,
        contextMsPerToken2: 1e-6,
        stepTokens: 2_048,
      },
      waitingPrefillMs: of.next() < 0.5 ? 0 : 120 * of.next(),
      running: Math.floor(20 * of.next()),
      runningMax: 64,
      itlMs: 8 + 8 * of.next(),
      kvUsageRatio: of.next(),
      bytesPerToken: { mean: BYTES_PER_TOKEN * base, p5: 3, p95: 5 },
      kappa: 0.9 + 0.1 * of.next(),
      ackedSeq: 1_000_000,
      models: [{ id: MODEL, maxModelLen: CONTEXT_TOKENS, loras: [] }],
    };
  }
}

interface Talk {
  readonly turn: PromptChain;
  readonly next: PromptChain;
}

function talksOf(shape: FleetShape): Talk[] {
  const segment = (id: number, share: number, assistant = false): Segment => {
    const tokens = Math.max(1, Math.round(shape.promptTokens * share));
    return segmentOf({ id, tokens, bytesPerToken: BYTES_PER_TOKEN, assistant });
  };
  const system = segment(1, SYSTEM_SHARE);
  return Array.from({ length: shape.conversations }, (_, k): Talk => {
    const user = segment(10 + 3 * k, 1 - SYSTEM_SHARE - NEW_SHARE);
    const answer = segment(11 + 3 * k, NEW_SHARE / 3, true);
    const more = segment(12 + 3 * k, (2 * NEW_SHARE) / 3);
    return { turn: chainOf([system, user], 1), next: chainOf([system, user, answer, more], 1) };
  });
}

function requestOf(k: number, chain: PromptChain): RouteRequest {
  return {
    id: `r${k}` as RequestId,
    tenant: 't',
    model: MODEL,
    stream: true,
    priority: 0,
    maxTokens: 256,
    clientDeadlineMs: null,
    bodyBytes: chain.bytes,
    prompts: [chain],
  };
}

const nameOf = (k: number): string => `r-${k}`;
const linkOf = (k: number): LinkId => `link-${k}` as LinkId;
