// What operators and their machines ask: is it alive, is it ready, what does it know, what would it decide.

import type { BodyBudget } from './body-budget.ts';
import type { BodyBounds } from './read-body.ts';
import { sendJson, sendText } from './client-routes.ts';
import { explainable, type Explainable } from './explanation.ts';
import type { Call, Route } from './http-listener.ts';
import { type Readiness, readinessText } from './readiness.ts';

export interface AdminSource<Status extends object> {
  /** Prometheus text, with the gauges of now. */
  exposition(): Promise<Exposition>;
  /** Bodies of requests that are asked about count like those of requests. */
  readonly budget: BodyBudget;
  bounds(): BodyBounds;
  status(): Status | Promise<Status>;
  /** The same as a few lines for people. */
  statusText(status: Status): string;
  readiness(): Readiness;
  explain(asked: Explainable): object | Promise<object>;
}

export interface Exposition {
  readonly text: string;
  readonly contentType: string;
}

const TEXT = 'text/plain; charset=utf-8';

export function adminRoutes<Status extends object>(source: AdminSource<Status>): readonly Route[] {
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
      handle: (call) => status(call, source),
    },
    {
      method: 'GET',
      path: '/metrics',
      audience: 'operators',
      handle: async (call) => {
        const { text, contentType } = await source.exposition();
        sendText(call, text, { contentType });
      },
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

async function status<Status extends object>(
  call: Call,
  source: AdminSource<Status>,
): Promise<void> {
  const value = await source.status();
  const accept = call.request.headers.accept ?? '';
  if (accept.startsWith('text/plain'))
    return sendText(call, source.statusText(value), { contentType: TEXT });
  return sendJson(call, value);
}

/** Takes the body of a generation request and says what would be decided; nothing is sent anywhere. */
async function explain(
  call: Call,
  source: Pick<AdminSource<object>, 'explain' | 'budget' | 'bounds'>,
): Promise<void> {
  sendJson(call, await source.explain(await explainable(call, source.budget, source.bounds())));
}
