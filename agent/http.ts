// The agent's own listener: whether it lives and is ready, what it knows, its metrics, and the address proof.
//
//   GET /livez              200 while the event loop turns
//   GET /readyz             200 while a router is linked and an engine is ready; else 503 and why
//   GET /status             everything, as JSON
//   GET /metrics            Prometheus text
//   GET /v1/proof?nonce=…   hex HMAC of the nonce (shared/runtime/address-proof.ts)
//   GET /v1/drain           which engines an operator has marked, and whether they may be stopped
//   POST /v1/drain          marks all, or `?replica=host:port`: routers send nothing new. Said twice it changes nothing
//   DELETE /v1/drain        takes the mark off

import type { AddressInfo } from 'node:net';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { ReplicaId } from '../shared/model/ids.ts';
import { addressProof, isNonceFor, isProofNonce } from '../shared/runtime/address-proof.ts';
import type { LinkClient } from '../shared/runtime/link-client.ts';
import { OPERATOR_REFUSALS, operatorVerdict } from '../shared/runtime/operator.ts';
import { VERSION } from '../shared/runtime/version.ts';
import type { AgentStatus } from './core.ts';
import type { HostFacts } from './host.ts';
import type { AgentMetrics } from './metrics.ts';
import { refreshGauges } from './metrics-gauges.ts';
import type { AgentOptions } from './options.ts';

export interface AgentHttpOptions {
  readonly listen: AgentOptions['listen'];
  readonly linkSecret: string | null;
  readonly agentId: () => string;
  readonly status: () => AgentStatus;
  readonly host: () => HostFacts;
  readonly links: () => LinkClient;
  readonly metrics: AgentMetrics;
  readonly drain: (replica: ReplicaId, on: boolean) => void;
}

export interface AgentHttp {
  readonly port: number;
  close(): Promise<void>;
}

export async function startAgentHttp(options: AgentHttpOptions): Promise<AgentHttp> {
  const server = fastify({ bodyLimit: 1_024, forceCloseConnections: true, requestTimeout: 10_000 });
  addRoutes(server, options);
  await server.listen(options.listen);
  const { port } = server.server.address() as AddressInfo;
  return { port, close: () => server.close() };
}

function addRoutes(server: FastifyInstance, options: AgentHttpOptions): void {
  server.get('/livez', () => ({ alive: true }));
  server.get('/readyz', (_request, reply) => {
    const missing = missingFor(options.status());
    return reply
      .code(missing.length === 0 ? 200 : 503)
      .send({ ready: missing.length === 0, missing });
  });
  server.get('/status', () => ({
    version: VERSION,
    ...options.status(),
    host: options.host(),
    connections: options.links().links(),
    connectionTotals: options.links().stats(),
  }));
  server.get('/metrics', async (_request, reply) => {
    refreshGauges(options.metrics, {
      status: options.status(),
      host: options.host(),
      links: options.links(),
    });
    return reply.type(options.metrics.contentType).send(await options.metrics.text());
  });
  server.get<{ Querystring: { nonce?: unknown } }>('/v1/proof', (request, reply) => {
    const { nonce } = request.query;
    if (typeof nonce !== 'string' || !isProofNonce(nonce)) {
      return reply.code(400).send({ error: 'nonce: 16 to 128 letters, digits, - or _' });
    }
    if (!isNonceFor(options.agentId(), nonce)) {
      return reply.code(403).send({ error: 'this agent is another one' });
    }
    const proof = addressProof(options.linkSecret, options.agentId(), nonce);
    return reply.type('text/plain').send(proof);
  });
  server.get('/v1/drain', () => drainState(options.status()));
  server.post('/v1/drain', (request, reply) => mark(options, { request, reply, on: true }));
  server.delete('/v1/drain', (request, reply) => mark(options, { request, reply, on: false }));
}

function mark(
  options: AgentHttpOptions,
  call: { readonly request: FastifyRequest; readonly reply: FastifyReply; readonly on: boolean },
): unknown {
  const { request, reply, on } = call;
  const secrets = options.linkSecret === null ? [] : [options.linkSecret];
  const verdict = operatorVerdict(request.raw, { secrets, certified: false });
  if (verdict !== 'allowed') return reply.code(403).send({ error: OPERATOR_REFUSALS[verdict] });
  const { replica } = request.query as { replica?: unknown };
  const known = options.status().engines.map((engine) => engine.replica);
  const named = replica === undefined ? known : known.filter((each) => each === replica);
  if (named.length === 0) {
    return reply.code(404).send({ error: `replica: one of ${known.join(', ')}` });
  }
  for (const each of named) options.drain(each, on);
  return drainState(options.status());
}

/** `drained`: whatever was marked may be stopped. */
function drainState({ engines }: AgentStatus): object {
  const marked = engines.filter(({ drain }) => drain !== null);
  return {
    draining: marked.length > 0,
    drained: marked.length > 0 && marked.every(({ drain }) => drain?.drained === true),
    open: marked.flatMap(({ targets }) => targets).reduce((sum, each) => sum + each.openLeases, 0),
    engines: engines.map(({ replica, phase, drain }) => ({ replica, phase, drain })),
  };
}

function missingFor(status: AgentStatus): string[] {
  const missing: string[] = [];
  if (!status.links.some((link) => link.routerId !== null)) missing.push('no router is linked');
  if (!status.engines.some((engine) => engine.phase === 'ready')) {
    const phases = status.engines.map((engine) => `${engine.replica} is ${engine.phase}`);
    missing.push(`no engine is ready: ${phases.join(', ')}`);
  }
  return missing;
}
