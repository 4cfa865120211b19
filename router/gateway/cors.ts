// Pages of other origins: which may read answers, and what a browser is told before it sends a request. A page that is not
// allowed gets no header, and its browser keeps the answer from it; the request itself is no other for that.
//
//   preflight   OPTIONS with Origin and Access-Control-Request-Method → 204
//   answer      Access-Control-Allow-Origin and the headers that a page may read, on errors and streams too
//
// No cookie is ever used, so credentials are never allowed: keys travel in a header that the page itself sets.

import type { IncomingHttpHeaders } from 'node:http';
import { CONVERSATION_IDS } from '../../shared/model/conversation-ids.ts';
import { REQUEST_HEADERS, RESPONSE_HEADERS } from './headers.ts';

export interface CorsPolicy {
  /** `https://host[:port]`, or `*` for every page. */
  readonly origins: readonly string[];
  /** s for which browsers remember a preflight. */
  readonly maxAgeS: number;
}

/** What clients send beside what the router reads; SDKs send a family of their own. */
const SENT_HEADERS = [
  'authorization',
  'x-api-key',
  'content-type',
  'accept',
  'tracestate',
  'openai-organization',
  'openai-project',
  'openai-beta',
  'idempotency-key',
  ...CONVERSATION_IDS.headers,
];
const SENT_FAMILY = 'x-stainless-';
const ALLOWED = new Set<string>([...SENT_HEADERS, ...REQUEST_HEADERS.map(({ name }) => name)]);
/** Longer lists than any client's are cut. */
const ASKED_HEADERS_MAX = 64;

const EXPOSED = RESPONSE_HEADERS.map(({ name }) => name as string)
  .filter((name) => !name.startsWith('access-control-') && name !== 'vary')
  .join(', ');

/** Headers of an answer to this request. Other caches must not give one page's answer to another. */
export function corsHeaders(
  policy: CorsPolicy,
  headers: IncomingHttpHeaders,
): Record<string, string> {
  const origin = allowedOrigin(policy, headers.origin);
  const vary = policy.origins.includes('*') ? {} : { vary: 'Origin' };
  if (origin === null) return vary;
  return {
    'access-control-allow-origin': origin,
    'access-control-expose-headers': EXPOSED,
    ...vary,
  };
}

export function isPreflight(method: string | undefined, headers: IncomingHttpHeaders): boolean {
  return (
    method === 'OPTIONS' &&
    headers.origin !== undefined &&
    headers['access-control-request-method'] !== undefined
  );
}

/** Headers of the answer to a preflight; `methods` are those of the path. */
export function preflightHeaders(
  policy: CorsPolicy,
  headers: IncomingHttpHeaders,
  methods: readonly string[],
): Record<string, string> {
  const origin = allowedOrigin(policy, headers.origin);
  const vary = { vary: 'Origin, Access-Control-Request-Headers' };
  if (origin === null) return vary;
  const asked = askedHeaders(headers['access-control-request-headers']);
  return {
    'access-control-allow-origin': origin,
    'access-control-allow-methods': methods.join(', '),
    ...(asked.length === 0 ? {} : { 'access-control-allow-headers': asked.join(', ') }),
    'access-control-max-age': String(policy.maxAgeS),
    ...vary,
  };
}

function allowedOrigin({ origins }: CorsPolicy, origin: string | undefined): string | null {
  if (origin === undefined) return null;
  if (origins.includes('*')) return '*';
  return origins.includes(origin) ? origin : null;
}

/** Of the headers that a page wants to send those that may be sent. */
function askedHeaders(text: string | undefined): string[] {
  const names = (text ?? '').split(',', ASKED_HEADERS_MAX).map((name) => name.trim().toLowerCase());
  return names.filter(
    (name) => ALLOWED.has(name) || (name.startsWith(SENT_FAMILY) && /^[a-z\d-]{1,64}$/.test(name)),
  );
}
