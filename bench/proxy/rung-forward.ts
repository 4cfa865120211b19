// The first rung of the ladder: the product's client listener and its connections to engines, and nothing between them.
// Body whole, sent to the replicas in turn, answer passed on as it comes, with back-pressure. No parse, no decision, no
// scan of the answer, no deadlines, no log, no metrics.
//
//   node bench/proxy/rung-forward.ts PORT REPLICA…

import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import type { Dispatcher } from 'undici';
import { BodyBudget } from '../../router/gateway/body-budget.ts';
import { readJsonBody } from '../../router/gateway/read-body.ts';
import { startHttpListener, type Call, type Route } from '../../router/gateway/http-listener.ts';
import { NOBODY } from '../../router/gateway/tenants.ts';
import { listenerLimits } from '../../router/gateway/listeners.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { createHttpPools } from '../../shared/runtime/http-pool.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { productReloadable } from './product-options.ts';

const [port = '0', ...replicas] = process.argv.slice(2);
const product = productReloadable();
const { limits, settings } = product;
const budget = new BodyBudget(limits);
const pools = createHttpPools(settings.connectTimeoutMs);
const origins = replicas.map((replica) => `http://127.0.0.1:${replica}`);
let turn = 0;

class Passing implements Dispatcher.DispatchHandler {
  private readonly response: ServerResponse;

  constructor(response: ServerResponse) {
    this.response = response;
  }

  onRequestStart(): void {}

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    const { 'content-type': type, 'content-length': length } = headers;
    this.response.writeHead(status, {
      ...(typeof type === 'string' ? { 'content-type': type } : {}),
      ...(length === undefined ? {} : { 'content-length': Number(length) }),
    });
  }

  onResponseData(controller: Dispatcher.DispatchController, piece: Buffer): void {
    if (this.response.write(piece)) return;
    controller.pause();
    this.response.once('drain', () => controller.resume());
  }

  onResponseEnd(): void {
    this.response.end();
  }

  onResponseError(): void {
    this.response.destroy();
  }
}

function dispatch({ path, response }: Call, method: 'GET' | 'POST', body: Buffer | null): void {
  const headers = body === null ? {} : { 'content-type': 'application/json' };
  const pool = pools.get(origins[turn++ % origins.length] ?? '');
  pool.dispatch({ method, path, headers, body, blocking: false }, new Passing(response));
}

async function forward(call: Call): Promise<void> {
  const hold = budget.open();
  const body = await readJsonBody(call, { hold, bounds: limits });
  call.response.on('close', () => hold.release());
  dispatch(call, 'POST', body);
}

const routes: readonly Route[] = [
  { method: 'POST', path: '/v1/chat/completions', audience: 'clients', handle: forward },
  {
    ...{ method: 'GET', path: '/v1/models', audience: 'clients' },
    handle: (call) => dispatch(call, 'GET', null),
  },
];

await startHttpListener({
  listen: { host: '127.0.0.1', port: Number(port) },
  tls: null,
  handshakeFailed: () => undefined,
  door: () => NOBODY,
  clock: systemClock,
  timers: systemTimers,
  limits: listenerLimits(limits),
  routes,
  cors: () => null,
  leaving: () => false,
  onRefused: (_call, error) => console.error(error),
  onLimit: (limit) => console.error(limit),
  onUnparsed: (code) => console.error(code),
});
