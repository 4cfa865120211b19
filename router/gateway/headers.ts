// Every header that answers carry and every request header that is read. The reference page is made from
// these tables. Nothing that a client sends under `x-spillway-` is believed; it may ask
// for an explanation there, and say how long it waits.

export interface HeaderRow {
  readonly name: string;
  readonly on:
    | 'every answer'
    | 'routed answers'
    | 'errors'
    | 'refusals with a time'
    | 'routed answers, on request'
    | 'embeddings as bytes'
    | 'certain refusals'
    | 'pages of allowed origins';
  readonly help: string;
}

export const RESPONSE_HEADERS = [
  {
    name: 'x-request-id',
    on: 'every answer',
    help: "The client's own x-request-id where it sent a usable one, else the router's id.",
  },
  {
    name: 'x-spillway-request-id',
    on: 'every answer',
    help: "The router's id of the request; the engine sees it with the number of the attempt added.",
  },
  {
    name: 'x-spillway-region',
    on: 'routed answers',
    help: 'Region that served the request, where a global router chose it. Pool, replica and tokens are then what the region says.',
  },
  {
    name: 'x-spillway-pool',
    on: 'routed answers',
    help: 'Pool that served the request.',
  },
  {
    name: 'x-spillway-replica',
    on: 'routed answers',
    help: 'Replica that served the request, and its rank where it has several.',
  },
  {
    name: 'x-spillway-route-reason',
    on: 'routed answers',
    help: 'Why that replica, or from a global router why that region: the reason of the routing decision.',
  },
  {
    name: 'x-spillway-attempts',
    on: 'routed answers',
    help: 'Attempts made, the successful one included.',
  },
  {
    name: 'x-spillway-prompt-tokens',
    on: 'routed answers',
    help: 'Predicted prompt tokens.',
  },
  {
    name: 'x-spillway-cached-tokens',
    on: 'routed answers',
    help: 'Predicted prompt tokens in the KV cache of that replica.',
  },
  {
    name: 'x-spillway-queue-ms',
    on: 'routed answers',
    help: 'Milliseconds that the request waited in the router.',
  },
  {
    name: 'x-spillway-predicted-ttft-ms',
    on: 'routed answers',
    help: 'Predicted milliseconds from sending to the first token; absent where it is unknown.',
  },
  {
    name: 'server-timing',
    on: 'routed answers',
    help: 'Where the time went, ms: `read`, `decide`, `queue`, `retry`, `engine`, and in all `ttft` (to the first token) or `total`.',
  },
  {
    name: 'x-spillway-explain',
    on: 'routed answers, on request',
    help: 'The decision as JSON, 2 KiB at most: candidates with their costs in ms, tokens, cached tokens and the probability `p` of being drawn. Where `router.clients.explain` allows it.',
  },
  {
    name: 'x-spillway-hint',
    on: 'routed answers, on request',
    help: 'From a global router: where the conversation lives, signed. The next turn may bring it along.',
  },
  {
    name: 'metadata',
    on: 'embeddings as bytes',
    help: "The engine's own description of the bytes (vLLM's `encoding_format: bytes`).",
  },
  {
    name: 'x-should-retry',
    on: 'errors',
    help: 'Whether a retry makes sense: `true` or `false`. SDKs obey it above the status.',
  },
  {
    name: 'retry-after',
    on: 'refusals with a time',
    help: 'Seconds until a retry makes sense, 1 to 60.',
  },
  {
    name: 'retry-after-ms',
    on: 'refusals with a time',
    help: 'The same in milliseconds; SDKs prefer it.',
  },
  {
    name: 'allow',
    on: 'certain refusals',
    help: '405: the methods that the path takes.',
  },
  {
    name: 'accept-encoding',
    on: 'certain refusals',
    help: '415: the encodings that a body may have.',
  },
  {
    name: 'www-authenticate',
    on: 'certain refusals',
    help: '401: that a bearer key is needed.',
  },
  {
    name: 'x-spillway-ingress',
    on: 'certain refusals',
    help: "421: where the routers of the tenant's zone are, as the configuration has it (`zones`).",
  },
  {
    name: 'access-control-allow-origin',
    on: 'pages of allowed origins',
    help: "The page's origin, or `*`: `router.clients.cors`.",
  },
  {
    name: 'access-control-expose-headers',
    on: 'pages of allowed origins',
    help: 'The headers of this list, so that a page can read them.',
  },
  {
    name: 'vary',
    on: 'pages of allowed origins',
    help: '`Origin`, on every answer while single origins are allowed.',
  },
] as const satisfies readonly HeaderRow[];

export type ResponseHeader = (typeof RESPONSE_HEADERS)[number]['name'];

export const REQUEST_HEADERS = [
  {
    name: 'authorization',
    help: "`Bearer` and the client's key, where the router asks for keys. It goes no further.",
  },
  { name: 'x-api-key', help: "The client's key, where there is no bearer." },
  {
    name: 'x-request-id',
    help: 'Echoed and logged, never a key. 1 to 128 visible ASCII characters.',
  },
  { name: 'traceparent', help: 'Passed on to the engine, with tracestate.' },
  {
    name: 'x-stainless-timeout',
    help: "Seconds that Node's SDK waits for the head of an answer (it tells those of a call, not those of its client): here for the first token; for the whole of an answer that is not streamed. Work that cannot be answered by then is not started.",
  },
  {
    name: 'x-stainless-read-timeout',
    help: "Seconds that Python's SDK bears without a byte: keep-alive comments come sooner than that; without a stream as `x-stainless-timeout`.",
  },
  {
    name: 'x-spillway-deadline-ms',
    help: 'Milliseconds that a client without such an SDK waits for its first token, or for the whole of an answer that is not streamed. The least of all counts.',
  },
  {
    name: 'x-stainless-retry-count',
    help: 'Logged, so that retry storms show; a request that comes again may use the room of the queue that is kept for those who were told to.',
  },
  {
    name: 'x-spillway-conversation-id',
    help: 'What the client calls the conversation, 1 to 256 characters: a global router keeps its turns together by it where their text does not tell. `x-conversation-id`, `x-session-id` and others that clients send by themselves say the same (`global.conversationIds`).',
  },
  {
    name: 'x-spillway-hint',
    help: '`1` asks a global router for a hint; the one that an answer brought tells any other global router where the conversation lives. One that is forged, expired, another tenant’s or another conversation’s counts for nothing.',
  },
  { name: 'origin', help: 'The page that asks, where `router.clients.cors` is set.' },
  { name: 'expect', help: '`100-continue`: the body is asked for once its headers are accepted.' },
  { name: 'content-encoding', help: '`gzip`, `deflate`, `br` and `identity` are understood.' },
  {
    name: 'x-spillway-explain',
    help: '`1` asks for the decision in the answer; ignored where `router.clients.explain` does not allow it.',
  },
] as const;

const SANE_ID = /^[\x21-\x7e]{1,128}$/;

/** The client's own request id; null when there is none or it is not fit to be echoed. */
export function clientRequestId(value: string | string[] | undefined): string | null {
  return typeof value === 'string' && SANE_ID.test(value) ? value : null;
}

/** Whether the client asks for the decision in its answer. */
export function wantsExplain(headers: Readonly<Record<string, unknown>>): boolean {
  return headers['x-spillway-explain'] === '1';
}

const TRACE_PARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}(?:-[\x21-\x7e]{1,128})?$/;
/** As long as the standard asks everybody to pass on. */
const TRACE_STATE = /^[\x20-\x7e]{1,512}$/;

/**
 * Headers of the client that go on upstream. Everything else stays here, credentials above all, and so does what is
 * none of these: an engine that refuses a header would fail for what a client sent.
 */
export function passedUpstream(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): Record<string, string> {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== 'string' || !TRACE_PARENT.test(traceparent)) return {};
  const state = typeof tracestate === 'string' && TRACE_STATE.test(tracestate);
  return state ? { traceparent, tracestate } : { traceparent };
}
