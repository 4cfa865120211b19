// The closed table of errors that a client or operator can meet. A code is stable; its text may improve.

export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

export interface ErrorRow {
  readonly status: number;
  /** OpenAI's `error.type`. */
  readonly type: string;
  /** Sent as `x-should-retry`; SDKs obey it above the status. */
  readonly retryable: boolean;
  readonly level: LogLevel;
  /** For the reference page. */
  readonly when: string;
}

export const ERRORS = {
  invalid_json: {
    status: 400,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The body is no JSON, or no UTF-8.',
  },
  invalid_request: {
    status: 400,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'What was sent is no HTTP, or a member has the wrong type or is missing.',
  },
  repeated_member: {
    status: 400,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'A member that the router reads or writes appears twice, or is spelled with an escape.',
  },
  invalid_api_key: {
    status: 401,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'A key is needed: there is none, or it is none of ours.',
  },
  certificate_required: {
    status: 403,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'A client certificate is needed: there is none, or it is not valid.',
  },
  operators_only: {
    status: 403,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: "Operators' routes on the clients' listener (there is no `admin`): the key's tenant is no operator.",
  },
  residency_violation: {
    status: 403,
    type: 'invalid_request_error',
    retryable: false,
    level: 'warn',
    when: 'No region that the tenant may be served in is left by its own rules: residency, certifications, tier.',
  },
  context_refused: {
    status: 401,
    type: 'invalid_request_error',
    retryable: false,
    level: 'warn',
    when: 'On the tier listener: the signed context is missing or not good. Only the tier before is told.',
  },
  region_not_allowed: {
    status: 421,
    type: 'invalid_request_error',
    retryable: false,
    level: 'error',
    when: 'On the tier listener: the tenant may not be served in this region. Only the tier before is told.',
  },
  context_length_exceeded: {
    status: 400,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The prompt is longer than any replica of the model takes.',
  },
  model_not_found: {
    status: 404,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'No pool serves the model.',
  },
  model_not_available_in_region: {
    status: 404,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The model is served, but in no region that the tenant may be served in.',
  },
  not_found: {
    status: 404,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'There is no such path.',
  },
  method_not_allowed: {
    status: 405,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The path does not take the method; `Allow` names those that it does.',
  },
  request_timeout: {
    status: 408,
    type: 'timeout_error',
    retryable: true,
    level: 'info',
    when: 'Head or body did not arrive within `router.limits.requestTimeoutMs`.',
  },
  request_too_large: {
    status: 413,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The body, or the extensions of its chunks, are larger than the limits.',
  },
  misdirected_request: {
    status: 421,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: "The tenant's requests are taken in its own zone only, and this router is in another: `x-spillway-ingress` says where to go.",
  },
  headers_too_large: {
    status: 431,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The headers are larger than `router.limits.headerBytes`.',
  },
  unsupported_media_type: {
    status: 415,
    type: 'invalid_request_error',
    retryable: false,
    level: 'info',
    when: 'The body is not JSON by its type, or in an encoding that is not understood.',
  },
  saturated: {
    status: 429,
    type: 'rate_limit_error',
    retryable: true,
    level: 'warn',
    when: "No room now: in the engines, the queue, or the router's own limits.",
  },
  fleet_saturated: {
    status: 429,
    type: 'rate_limit_error',
    retryable: true,
    level: 'warn',
    when: 'Every region that the tenant may be served in asked for time.',
  },
  client_closed: {
    status: 499,
    type: 'client_closed_request',
    retryable: false,
    level: 'info',
    when: 'The client left before its request had arrived. Only in the log and the counter.',
  },
  tls_unusable: {
    status: 500,
    type: 'server_error',
    retryable: false,
    level: 'error',
    when: 'A certificate or key cannot be used. Only when the router starts or reads its configuration.',
  },
  internal: {
    status: 500,
    type: 'server_error',
    retryable: true,
    level: 'error',
    when: 'A fault of the router itself; `spillway_bugs_total` counts it.',
  },
  upstream_failed: {
    status: 502,
    type: 'server_error',
    retryable: true,
    level: 'warn',
    when: 'The replicas that were tried failed before the first token.',
  },
  no_healthy_region: {
    status: 503,
    type: 'server_error',
    retryable: true,
    level: 'warn',
    when: 'Every region that the tenant may be served in is down, not seen, or without capacity for the model.',
  },
  no_replica: {
    status: 503,
    type: 'server_error',
    retryable: true,
    level: 'warn',
    when: 'No replica of the model can take requests.',
  },
  warming_up: {
    status: 503,
    type: 'server_error',
    retryable: true,
    level: 'warn',
    when: 'The replicas of the model are still loading.',
  },
  draining: {
    status: 503,
    type: 'server_error',
    retryable: true,
    level: 'info',
    when: 'The router is shutting down.',
  },
  queue_timeout: {
    status: 504,
    type: 'timeout_error',
    retryable: true,
    level: 'warn',
    when: 'The request waited for as long as it may.',
  },
  upstream_timeout: {
    status: 504,
    type: 'timeout_error',
    retryable: true,
    level: 'warn',
    when: 'The replicas that were tried gave no first token in time.',
  },
  stream_interrupted: {
    status: 502,
    type: 'server_error',
    retryable: true,
    level: 'warn',
    when: 'A replica failed in the middle of its answer; as the last event of a stream.',
  },
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
