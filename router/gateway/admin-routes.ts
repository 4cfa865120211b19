// What operators and their machines ask: is it alive, is it ready, what does it know, what would it decide.

import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { BodyBudget } from './body-budget.ts';
import type { BodyBounds } from './read-body.ts';
import { sendJson, sendText } from './client-routes.ts';
import { explainable, type Explainable } from './explanation.ts';
import { setGauges } from '../regional/gauges.ts';
import type { Call, Route } from './http-listener.ts';
import type { MetricName } from '../regional/metrics.ts';
import { type Readiness, readinessText, type RouterStatus, statusText } from '../regional/status.ts';

export interface AdminSource {
  readonly metrics: Metrics<MetricName>;
  /** Bodies of requests that are asked about count like those of requests. */
  readonly budget: BodyBudget;
  bounds(): BodyBounds;
  status(): RouterStatus | Promise<RouterStatus>;
  readiness(): Readiness;
  explain(asked: Explainable): object | Promise<object>;
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
      handle: async (call) => status(call, await source.status()),
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
  setGauges(source.metrics, await source.status());
  const text = await source.metrics.text();
  sendText(call, text, { contentType: source.metrics.contentType });
}

/** Takes the body of a generation request and says what would be decided; nothing is sent anywhere. */
async function explain(call: Call, source: AdminSource): Promise<void> {
  sendJson(call, await source.explain(await explainable(call, source.budget, source.bounds())));
}
