// SGLang's error bodies: flat for OpenAI's protocols, nested and short for its own.

import type { Reply } from '../reply.ts';

/** A request that it will not or cannot serve. */
export interface SglangFault {
  readonly status: number;
  readonly type: string;
  readonly message: string;
  /** An abort by the scheduler: in a stream it is the first chunk of a 200. */
  readonly aborted: boolean;
}

export function badRequest(message: string, type = 'BadRequestError'): SglangFault {
  return { status: 400, type, message, aborted: false };
}

export const QUEUE_FULL: SglangFault = {
  status: 503,
  type: '503',
  message: 'The request queue is full.',
  aborted: true,
};

export function faultReply(fault: SglangFault, native = false): Reply {
  const { status, message } = fault;
  const body = native ? { error: { message } } : flat(fault);
  return { status, body };
}

/** An abort as an event: the name of the status instead of its number, and nested. */
export function faultEvent(fault: SglangFault): object {
  const type = fault.status === 503 ? 'SERVICE_UNAVAILABLE' : fault.type;
  return { error: flat({ ...fault, type }) };
}

function flat({ status, type, message }: SglangFault): object {
  return { object: 'error', message, type, param: null, code: status };
}

/** SGLang hides most of FastAPI's own bodies, but for these. */
export const NOT_FOUND: Reply = {
  status: 404,
  body: { object: 'error', message: 'Not Found', type: '404', param: null, code: 404 },
};

export function methodNotAllowed(allow: string): Reply {
  const message = 'Method Not Allowed';
  return {
    status: 405,
    body: { object: 'error', message, type: '405', param: null, code: 405 },
    headers: { allow },
  };
}

export const UNAUTHORIZED: Reply = { status: 401, body: { error: 'Unauthorized' } };
