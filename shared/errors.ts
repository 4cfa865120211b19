// The closed table of errors that a client or operator can meet. A code is stable; its text may improve.

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

export interface ErrorRow {
  readonly status: number;
  /** OpenAI's `error.type`. */
  readonly type: string;
  /** Sent as `x-should-retry`; SDKs obey it above the status. */
  readonly retryable: boolean;
  readonly level: LogLevel;
}

export const ERRORS = {
  invalid_json: { status: 400, type: 'invalid_request_error', retryable: false, level: 'info' },
  invalid_request: { status: 400, type: 'invalid_request_error', retryable: false, level: 'info' },
  repeated_member: { status: 400, type: 'invalid_request_error', retryable: false, level: 'info' },
  invalid_api_key: { status: 401, type: 'invalid_request_error', retryable: false, level: 'info' },
  certificate_required: {
    status: 403,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  context_length_exceeded: {
    status: 400,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  model_not_found: { status: 404, type: 'invalid_request_error', retryable: false, level: 'info' },
  not_found: { status: 404, type: 'invalid_request_error', retryable: false, level: 'info' },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  request_timeout: { status: 408, type: 'timeout_error', retryable: true, level: 'info' },
  request_too_large: {
    status: 413,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  headers_too_large: {
    status: 431,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
  },
  saturated: { status: 429, type: 'rate_limit_error', retryable: true, level: 'warn' },
  client_closed: { status: 499, type: 'client_closed_request', retryable: false, level: 'info' },
  tls_unusable: { status: 500, type: 'server_error', retryable: false, level: 'error' },
  internal: { status: 500, type: 'server_error', retryable: true, level: 'error' },
  upstream_failed: { status: 502, type: 'server_error', retryable: true, level: 'warn' },
  no_replica: { status: 503, type: 'server_error', retryable: true, level: 'warn' },
  warming_up: { status: 503, type: 'server_error', retryable: true, level: 'warn' },
  draining: { status: 503, type: 'server_error', retryable: true, level: 'info' },
  queue_timeout: { status: 504, type: 'timeout_error', retryable: true, level: 'warn' },
  upstream_timeout: { status: 504, type: 'timeout_error', retryable: true, level: 'warn' },
  stream_interrupted: { status: 502, type: 'server_error', retryable: true, level: 'warn' },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof ERRORS;

export const ERROR_CODES = Object.keys(ERRORS) as readonly ErrorCode[];

/** An operational failure. Bugs are assertions, expected outcomes are values; this is neither. */
export class FleetError extends Error {
  readonly code: ErrorCode;
  /** The request member at fault, where one is. */
  readonly param: string | null;
  /** Seconds until a retry makes sense, where known. */
  readonly retryAfterS: number | null;

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; param?: string; retryAfterS?: number } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'FleetError';
    this.code = code;
    this.param = options.param ?? null;
    this.retryAfterS = options.retryAfterS ?? null;
  }

  get row(): ErrorRow {
    return ERRORS[this.code];
  }
}
