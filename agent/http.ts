// The agent's own listener: whether it lives and is ready, what it knows, its metrics, and the address proof.
//
//   GET /livez              200 while the event loop turns
//   GET /readyz             200 while a router is linked and an engine is ready; else 503 and why
//   GET /status             everything, as JSON
//   GET /metrics            Prometheus text
//   GET /v1/proof?nonce=…   hex HMAC of the nonce (shared/runtime/address-proof.ts)

import type { AddressInfo } from 'node:net';
import fastify, { type FastifyInstance } from 'fastify';
import { addressProof, isProofNonce } from '../shared/runtime/address-proof.ts';
import type { LinkClient } from '../shared/runtime/link-client.ts';
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
    const proof = addressProof(options.linkSecret, options.agentId(), nonce);
    return reply.type('text/plain').send(proof);
  });
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
