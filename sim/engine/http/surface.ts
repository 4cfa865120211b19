// What one kind of engine says over HTTP, apart from how an engine process lives (server.ts).
//
// A kind is a function from its host to a surface. The host owns the port, the models and their timers, and
// keeps what it received; the surface answers every call but `/sim/…`, and decides what SIGTERM and the death of
// the core look like. Each start of the process makes a new surface: nothing outlives a crash.

import type { IncomingHttpHeaders, ServerResponse } from 'node:http';

import type { RoleRuntime } from '../../../shared/runtime/role.ts';
import type { EngineDriver } from './driver.ts';
import type { KvEndpoints } from './kv-feed.ts';
import type { KvEncoding } from './kv-wire.ts';
import type { EngineServerOptions } from './options.ts';

export type EngineRuntime = Pick<RoleRuntime, 'clock' | 'timers' | 'random' | 'log'>;

/** One request with its whole body. */
export interface HttpCall {
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** Names in lower case. */
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** What a surface may use of the process that it is part of. */
export interface EngineHost {
  readonly options: EngineServerOptions;
  readonly runtime: EngineRuntime;
  /** One a data-parallel rank, in order; at least one. */
  readonly engines: readonly EngineDriver[];
  /** ms since 1970 at which the process was started. */
  readonly startedWallMs: number;
  /** ms since 1970 at which its port was last opened. */
  readonly openedWallMs: number;
  /** Where each rank's KV events can be had; empty where none are published. */
  kvEndpoints(): readonly KvEndpoints[];
  /** Random hex digits. */
  hex(digits: number): string;
  /** Runs `task` unless the process is gone before. */
  after(delayMs: number, task: () => void): void;
  /** Refuses new connections and closes idle ones; those at work stay. */
  stopListening(): void;
  /** The process ends: connections are cut, the port refuses. `code`: of the process, 0 unless given. */
  exit(code?: number): void;
}

export interface EngineSurface {
  /** How long before the model can generate the port opens, ms; 0 where it refuses until then. */
  readonly opensAheadMs: number;
  /** How a rank tells of its KV events; null where the kind has none. */
  readonly kvEncoding: ((rank: number) => KvEncoding) | null;
  answer(call: HttpCall, response: ServerResponse): void;
  /** The core has died; whoever submitted a request was told that it failed. */
  coreDied(): void;
  /** The device fails under what is computed and lives on; absent where a kind's engine would not survive it. */
  failBatch?(): void;
  /** A rank's pause or sleep has come to rest. */
  rested?(): void;
  /** A rank's shutdown is through. */
  stopped?(): void;
  /** SIGTERM. The process is gone once `host.exit()` was called. */
  terminate(): void;
}

export type SurfaceFactory = (host: EngineHost) => EngineSurface;
