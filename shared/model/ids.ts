// Branded identifiers. An id never crosses into another kind by accident; making one is a cast at the edge.

declare const brand: unique symbol;
type Id<Kind extends string> = string & { readonly [brand]: Kind };

/** One attempt of one request: `<requestId>.<n>`, also the lease id and the engine's `X-Request-Id`. */
export type LeaseId = Id<'lease'>;
/** Ours, random; a client's own id is echoed and logged, never a key. */
export type RequestId = Id<'request'>;
/** One engine address inside a pool: the host:port of its advertised URL. */
export type ReplicaId = Id<'replica'>;
export type PoolId = Id<'pool'>;
/** As the global router's configuration names it. */
export type RegionId = Id<'region'>;
/** Random per router process. */
export type RouterId = Id<'router'>;
/** Random per agent process. */
export type AgentId = Id<'agent'>;
/** One life of an engine process. A new one empties ledger and index. */
export type Incarnation = Id<'incarnation'>;
/** One connection between a child and its parent, as its holder names it. */
export type LinkId = Id<'link'>;

/** Where a request can be sent: report, ledger and index are kept per data-parallel rank. */
export interface Target {
  readonly replica: ReplicaId;
  readonly rank: number;
}

/** Key of a target in maps. */
export function targetKey(target: Target): string {
  return `${target.replica}#${target.rank}`;
}

export function leaseIdOf(request: RequestId, attempt: number): LeaseId {
  return `${request}.${attempt}` as LeaseId;
}
