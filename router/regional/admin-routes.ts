// What operators and their machines ask: is it alive, is it ready, what does it know, what would it decide.

import type { Decision } from '../../shared/model/decision.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import { sendJson, sendText } from './client-routes.ts';
import type { RouteRequest } from './events.ts';
import { setGauges } from './gauges.ts';
import type { Call, Route } from './http-listener.ts';
import type { MetricName } from './metrics.ts';
import type { RequestDesk } from './request-desk.ts';
import { type Readiness, readinessText, type RouterStatus, statusText } from './status.ts';

export interface AdminSource {
  readonly requests: RequestDesk;
  readonly metrics: Metrics<MetricName>;
  status(): RouterStatus;
  readiness(): Readiness;
  explain(request: RouteRequest): Decision;
}

const TEXT = 'text/plain; charset=utf-8';

export function adminRoutes(source: AdminSource): readonly Route[] {
  return [
    // Answered by the event loop itself: that it answers is the answer.
    {
      method: 'GET',
      path: '/livez',
      audience: 'operators',
      open: true,
      handle: (call) => sendText(call, 'alive\n', { contentType: TEXT }),
    },
    {
      method: 'GET',
      path: '/readyz',
      audience: 'operators',
      open: true,
      handle: (call) => readyz(call, source.readiness()),
    },
    {
      method: 'GET',
      path: '/status',
      audience: 'operators',
      handle: (call) => status(call, source.status()),
    },
    {
      method: 'GET',
      path: '/metrics',
      audience: 'operators',
      handle: (call) => exposition(call, source),
    },
    {
      method: 'POST',
      path: '/v1/route/explain',
      audience: 'operators',
      handle: (call) => explain(call, source),
    },
  ];
}

function readyz(call: Call, readiness: Readiness): void {
  const verbose = call.query.has('verbose');
  const text = verbose ? readinessText(readiness) : `${readiness.ready ? 'ready' : 'not ready'}\n`;
  sendText(call, text, { contentType: TEXT, status: readiness.ready ? 200 : 503 });
}

function status(call: Call, value: RouterStatus): void {
  const accept = call.request.headers.accept ?? '';
  if (accept.startsWith('text/plain'))
    return sendText(call, statusText(value), { contentType: TEXT });
  return sendJson(call, value);
}

async function exposition(call: Call, source: AdminSource): Promise<void> {
  setGauges(source.metrics, source.status());
  const text = await source.metrics.text();
  sendText(call, text, { contentType: source.metrics.contentType });
}

/** Takes the body of a generation request and says what would be decided; nothing is sent anywhere. */
async function explain(call: Call, source: AdminSource): Promise<void> {
  const request = await source.requests.explainable(call);
  const { prompts, ...asked } = request;
  const prompt = prompts.map(({ keySpace, bytes, hashes, turnEnds, parts, tokenIds }) => ({
    keySpace,
    bytes,
    chunks: hashes.length / 2,
    turnEnds: turnEnds.length,
    parts,
    tokenIds,
  }));
  sendJson(call, { request: { ...asked, prompts: prompt }, decision: source.explain(request) });
}
