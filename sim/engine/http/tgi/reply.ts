// How TGI's web server answers: its error bodies, its headers, its events.

import type { ServerResponse } from 'node:http';

export interface TgiReply {
  readonly status: number;
  /** Sent as JSON; a string is sent as it is. */
  readonly body: unknown;
  readonly contentType?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Faults of a request, by what TGI calls them. */
export type TgiFault =
  | { readonly kind: 'overloaded' }
  | { readonly kind: 'validation'; readonly detail: string }
  | { readonly kind: 'template'; readonly detail: string }
  | { readonly kind: 'generation'; readonly detail: string };

/** What every request of a failed batch is told. */
export const DEVICE_FAILED: TgiFault = {
  kind: 'generation',
  detail: 'Server error: CUDA error: an illegal memory access was encountered',
};
/** What is told when the shard that computes is gone. */
export const SHARD_GONE: TgiFault = { kind: 'generation', detail: 'transport error' };

export const UNHEALTHY: TgiReply = {
  status: 503,
  body: { error: 'unhealthy', error_type: 'healthcheck' },
};
export const NOT_FOUND: TgiReply = { status: 404, body: '' };
export const UNAUTHORIZED: TgiReply = { status: 401, body: '' };

export function methodNotAllowed(allow: string): TgiReply {
  return { status: 405, body: '', headers: { allow } };
}

/** `{"error","error_type"}`, alike in a body and in an event. */
export function faultBody(fault: TgiFault): { error: string; error_type: string } {
  switch (fault.kind) {
    case 'overloaded':
      return { error: 'Model is overloaded', error_type: 'overloaded' };
    case 'validation':
      return { error: `Input validation error: ${fault.detail}`, error_type: 'validation' };
    case 'template':
      return { error: `Template error: ${fault.detail}`, error_type: 'template_error' };
    case 'generation':
      return {
        error: `Request failed during generation: ${fault.detail}`,
        error_type: 'generation',
      };
  }
}

const STATUS: Readonly<Record<TgiFault['kind'], number>> = {
  overloaded: 429,
  validation: 422,
  template: 422,
  generation: 424,
};

export function faultReply(fault: TgiFault): TgiReply {
  return { status: STATUS[fault.kind], body: faultBody(fault) };
}

/** What the web framework says of a body that does not have the form of the request. */
export function malformed(status: 400 | 415 | 422, text: string): TgiReply {
  return { status, body: text, contentType: 'text/plain; charset=utf-8' };
}

export function send(response: ServerResponse, reply: TgiReply, wallMs: number): void {
  const text = typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body);
  const bytes = Buffer.from(text, 'utf8');
  begin(response, wallMs, reply.headers);
  if (bytes.length > 0) {
    response.setHeader('content-type', reply.contentType ?? 'application/json');
  }
  response.setHeader('content-length', bytes.length);
  response.writeHead(reply.status);
  response.end(bytes);
}

/** Status and headers of a stream: out before the request is looked at. */
export function sendStreamHead(
  response: ServerResponse,
  wallMs: number,
  headers: Readonly<Record<string, string>>,
): void {
  begin(response, wallMs, headers);
  response.setHeader('content-type', 'text/event-stream');
  response.setHeader('cache-control', 'no-cache');
  response.setHeader('x-accel-buffering', 'no');
  response.writeHead(200);
  response.flushHeaders();
}

export function event(body: object | string): string {
  return `data: ${typeof body === 'string' ? body : JSON.stringify(body)}\n\n`;
}

function begin(
  response: ServerResponse,
  wallMs: number,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.sendDate = false;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
  response.setHeader(
    'vary',
    'origin, access-control-request-method, access-control-request-headers',
  );
  response.setHeader('access-control-allow-origin', '*');
  response.setHeader('date', new Date(wallMs).toUTCString());
  if (response.shouldKeepAlive) response.removeHeader('connection');
}
