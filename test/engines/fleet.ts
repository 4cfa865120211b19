// `spillway up` before the engines, as an operator runs it: started, asked over HTTP, read through its log.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RequestRecord } from '../../router/gateway/request-log.ts';
import type { AttemptFields } from '../../router/regional/engine-words.ts';
import type { RouterStatus } from '../../router/regional/status.ts';
import type { Decision } from '../../shared/model/decision.ts';
import { startGroup, type ProcessGroup } from './process-group.ts';
import { waitFor } from './wait.ts';

const ROOT = join(import.meta.dirname, '..', '..');

export interface ReplicaView {
  readonly replica: string;
  readonly phase: string;
  readonly incarnation: string | null;
  readonly leases: number;
  readonly indexChunks: number;
}

export interface FleetView {
  readonly replicas: readonly ReplicaView[];
  readonly leases: number;
  readonly openRequests: number;
}

/** What the router's log says about one request; members that are null there are absent here. */
export type RequestLine = Partial<RequestRecord & AttemptFields> & { readonly id: string };

export interface FleetOptions {
  readonly port: number;
  readonly engineUrls: readonly string[];
  readonly logPath: string;
}

export class Fleet {
  readonly url: string;
  readonly #group: ProcessGroup;
  readonly #logPath: string;

  constructor(options: FleetOptions) {
    this.url = `http://127.0.0.1:${options.port}`;
    this.#logPath = options.logPath;
    this.#group = startGroup({
      command: join(ROOT, 'bin', 'spillway'),
      args: [
        'up',
        '--port',
        String(options.port),
        ...options.engineUrls.flatMap((url) => ['--engine', url]),
      ],
      cwd: ROOT,
      logPath: options.logPath,
    });
  }

  get pid(): number {
    return this.#group.pid;
  }

  ended(): number | string | null {
    return this.#group.ended();
  }

  async untilListening(limitMs: number): Promise<void> {
    await waitFor({ what: 'spillway answers', limitMs }, async () => {
      const ended = this.ended();
      if (ended !== null) throw new Error(`spillway ended (${ended}): ${this.#lastLines()}`);
      return (await this.view()) === null ? null : true;
    });
  }

  /** Null when it does not answer. */
  async view(): Promise<FleetView | null> {
    const status = await this.status();
    return status === null ? null : viewOf(status);
  }

  /** `/status` as it is; null when it does not answer. */
  async status(): Promise<RouterStatus | null> {
    return (await this.#json('GET', '/status')) as RouterStatus | null;
  }

  /** The router's answer to "where would this go?". */
  async explain(body: unknown): Promise<Decision | null> {
    const answer = await this.#json('POST', '/v1/route/explain', body);
    return answer === null ? null : (answer as { decision: Decision }).decision;
  }

  async metrics(): Promise<string> {
    const answer = await fetch(`${this.url}/metrics`, { signal: AbortSignal.timeout(5_000) });
    return answer.text();
  }

  /** All request lines so far, by request id. */
  requestLines(): Map<string, RequestLine> {
    return readRequestLines(this.#logPath);
  }

  /** Resolves with the exit code of a polite end. */
  async stop(): Promise<number | string> {
    await this.#group.stop(15_000);
    return this.#group.end;
  }

  #lastLines(): string {
    return readFileSync(this.#logPath, 'utf8').trim().split('\n').slice(-3).join(' | ');
  }

  async #json(method: string, path: string, body?: unknown): Promise<unknown> {
    try {
      const answer = await fetch(this.url + path, {
        method,
        signal: AbortSignal.timeout(5_000),
        ...(body === undefined
          ? {}
          : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
      });
      return answer.ok ? await answer.json() : null;
    } catch {
      return null;
    }
  }
}

export function viewOf(status: RouterStatus): FleetView {
  const replicas = status.pools.flatMap((pool) =>
    pool.replicas.flatMap(({ id, targets }) =>
      targets.map((target) => ({
        replica: id,
        phase: target.phase ?? 'unknown',
        incarnation: target.incarnation,
        leases: target.leases,
        indexChunks: target.indexChunks,
      })),
    ),
  );
  return { replicas, leases: status.leases, openRequests: status.openRequests };
}

/** The request lines of a router's log in JSON, by request id. */
export function readRequestLines(logPath: string): Map<string, RequestLine> {
  const lines = new Map<string, RequestLine>();
  for (const text of readFileSync(logPath, 'utf8').split('\n')) {
    const line = requestLineOf(text);
    if (line !== null) lines.set(line.id, line);
  }
  return lines;
}

function requestLineOf(text: string): RequestLine | null {
  if (!text.startsWith('{')) return null;
  const line = JSON.parse(text) as Record<string, unknown>;
  return line['msg'] === 'request' ? (line as unknown as RequestLine) : null;
}
