// What an agent says of itself to people and metrics.

import type { DrainView } from './core-drain.ts';
import type { AgentLinkView, EngineIdentity } from './events.ts';
import type { KvHeard } from './policy/kv-hearing.ts';
import type { AgentId, Incarnation, PoolId, ReplicaId } from '../shared/model/ids.ts';
import type { Phase } from '../shared/model/phase.ts';
import type { ReplicaReport } from '../shared/model/report.ts';

export interface AgentTargetStatus {
  readonly rank: number;
  /** As a router would get it now; `ackedSeq` is -1. */
  readonly report: ReplicaReport;
  /** Users' requests in the engine that routers told of. */
  readonly openLeases: number;
  /** Requests that are not past their prefill, the agent's own included. */
  readonly waitingRequests: number;
  /** Since the cost curve was last anchored. */
  readonly costObservations: number;
  readonly kvEvents: KvHeard;
}

export interface AgentEngineStatus {
  readonly replica: ReplicaId;
  readonly advertiseUrl: string;
  readonly phase: Phase;
  readonly phaseForMs: number;
  /** Null where no operator has marked it. */
  readonly drain: DrainView | null;
  /** Times that it has died in load since it last served. */
  readonly loadDeaths: number;
  readonly incarnation: Incarnation | null;
  readonly identity: EngineIdentity | null;
  readonly targets: readonly AgentTargetStatus[];
}

export interface AgentStatus {
  readonly agentId: AgentId;
  readonly pool: PoolId;
  readonly engines: readonly AgentEngineStatus[];
  readonly links: readonly AgentLinkView[];
}
