// How a uvicorn server answers: header names in lower case, `vary: Origin`, error bodies of vLLM and of FastAPI.

import type { ServerResponse } from 'node:http';

export interface Reply {
  readonly status: number;
  /** Sent as JSON; a string is sent as it is. */
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON where absent; null for none. */
  readonly contentType?: string | null;
}

/** vLLM's error body; `code` is the status. */
export function errorReply(
  status: number,
  type: string,
  message: string,
  param: string | null = null,
): Reply {
  return { status, body: { error: { message, type, param, code: status } } };
}

export const NOT_FOUND: Reply = { status: 404, body: { detail: 'Not Found' } };
export const UNAUTHORIZED: Reply = { status: 401, body: { error: 'Unauthorized' } };

export function methodNotAllowed(allow: string): Reply {
  return { status: 405, body: { detail: 'Method Not Allowed' }, headers: { allow } };
}

const CORE_DEAD_MESSAGE =
  'EngineCore encountered an issue. See stack trace (above) for the root cause.';

export const CORE_DEAD = errorReply(500, 'InternalServerError', CORE_DEAD_MESSAGE);

/** The same as an event of a stream: written by another encoder, hence the spaces. */
export const CORE_DEAD_EVENT = `data: {"error": {"message": "${CORE_DEAD_MESSAGE}", "type": "InternalServerError", "param": null, "code": 500}}\n\n`;

export const QUEUE_FULL = errorReply(
  503,
  'Service Unavailable',
  'The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.',
);

export function sendReply(response: ServerResponse, reply: Reply, wallMs: number): void {
  const text = typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body);
  const bytes = Buffer.from(text, 'utf8');
  beginHeaders(response, wallMs);
  for (const [name, value] of Object.entries(reply.headers ?? {})) response.setHeader(name, value);
  response.setHeader('content-length', bytes.length);
  const type = reply.contentType === undefined ? 'application/json' : reply.contentType;
  if (bytes.length > 0 && type !== null) response.setHeader('content-type', type);
  response.setHeader('vary', 'Origin');
  response.writeHead(reply.status);
  response.end(bytes);
}

/** Status and headers of a stream, sent before anything is known of the answer. */
export function sendStreamHead(
  response: ServerResponse,
  wallMs: number,
  headers: Readonly<Record<string, string>> = {},
): void {
  beginHeaders(response, wallMs);
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.setHeader('content-type', 'text/event-stream; charset=utf-8');
  response.setHeader('vary', 'Origin');
  response.setHeader('transfer-encoding', 'chunked');
  response.writeHead(200);
  response.flushHeaders();
}

function beginHeaders(response: ServerResponse, wallMs: number): void {
  response.sendDate = false;
  response.setHeader('date', new Date(wallMs).toUTCString());
  response.setHeader('server', 'uvicorn');
  // Uvicorn names neither for a connection that stays open.
  if (response.shouldKeepAlive) response.removeHeader('connection');
}
