// The routes that are sent on to engines: under which paths clients ask for them, and what each asks of an engine. A
// request goes to the engine under the path that its client used: engines differ in which of them they have.

import type { RequestWork } from '../policy/request-work.ts';

export interface ApiRouteRow {
  readonly paths: readonly [string, ...string[]];
  readonly work: RequestWork;
}

export const API_ROUTES = {
  chat: { paths: ['/v1/chat/completions'], work: 'generation' },
  completions: { paths: ['/v1/completions'], work: 'generation' },
  embeddings: { paths: ['/v1/embeddings'], work: 'prefill' },
  rerank: { paths: ['/v1/rerank', '/v2/rerank', '/rerank'], work: 'prefill' },
  score: { paths: ['/v1/score', '/score'], work: 'prefill' },
  tokenize: { paths: ['/tokenize'], work: 'light' },
  detokenize: { paths: ['/detokenize'], work: 'light' },
} as const satisfies Record<string, ApiRouteRow>;

export type ApiRoute = keyof typeof API_ROUTES;

const ROUTE_OF_PATH: ReadonlyMap<string, ApiRoute> = new Map(
  (Object.keys(API_ROUTES) as ApiRoute[]).flatMap((route) =>
    API_ROUTES[route].paths.map((path) => [path, route] as const),
  ),
);

/** The route that a path belongs to; null where it is none of these. */
export function apiRouteOf(path: string): ApiRoute | null {
  return ROUTE_OF_PATH.get(path) ?? null;
}

/** The route of that name; null for another name. */
export function apiRouteNamed(name: string): ApiRoute | null {
  return Object.hasOwn(API_ROUTES, name) ? (name as ApiRoute) : null;
}
