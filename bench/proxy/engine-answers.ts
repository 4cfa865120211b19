// What the benchmark's engine answers besides generating: enough of vLLM for an agent and for other routers to take it for
// one. Its figures are true: running requests, prompt tokens as it counts them in its `usage`, first tokens, steps.
//
// vllm-router and smg also ask what an SGLang server would tell; what they get says an engine without backlog, which it is.

export const MODEL = 'bench-model';
const CREATED = 1_700_000_000;
/** Room for 2,048 requests of 32k tokens: the KV cache is no part of what is measured. */
const KV_TOKENS = 67_108_864;
const BLOCK_TOKENS = 16;
const BYTES_PER_TOKEN = 4;

export class EngineCounts {
  running = 0;
  promptTokens = 0;
  generatedTokens = 0;
  firstTokens = 0;
  /** Tokens in requests that run. */
  heldTokens = 0;
}

export interface PlainAnswer {
  readonly type: string;
  readonly text: string;
}

/** Tokens of a request body, as every reply's usage counts them. */
export function tokensOf(bodyBytes: number): number {
  return Math.max(1, Math.round(bodyBytes / BYTES_PER_TOKEN));
}

/** Null for what such a server does not have: 404. */
export function plainAnswer(path: string, counts: EngineCounts): PlainAnswer | null {
  if (path === '/metrics') return { type: 'text/plain; version=0.0.4', text: metrics(counts) };
  const body = jsonAnswer(path, counts);
  return body === null ? null : { type: 'application/json', text: JSON.stringify(body) };
}

/** What vllm-router asks before each decision: the prompt as tokens, any of which are as long as others. */
export function renderAnswer(body: Buffer): PlainAnswer {
  const tokens = Array.from(
    { length: tokensOf(body.length) },
    (_, at) => 1_000 + (body[at * BYTES_PER_TOKEN] ?? 0),
  );
  const text = JSON.stringify({ request_id: 'chatcmpl-0', token_ids: tokens, model: MODEL });
  return { type: 'application/json', text };
}

function jsonAnswer(path: string, counts: EngineCounts): unknown {
  switch (path) {
    case '/health':
    case '/health_generate':
      return {};
    case '/version':
      return { version: '0.32.0' };
    case '/v1/models':
      return { object: 'list', data: [model()] };
    case '/get_model_info':
    case '/model_info':
      return { model_path: MODEL, tokenizer_path: MODEL, is_generation: true };
    case '/server_info':
    case '/get_server_info':
      return { model_path: MODEL, served_model_name: MODEL, version: '0.32.0' };
    case '/get_load':
      return [{ dp_rank: 0, ...load(counts) }];
    case '/v1/loads':
      return { timestamp: new Date().toISOString(), dp_rank_count: 1, loads: [loadNow(counts)] };
    default:
      return null;
  }
}

function model(): object {
  return {
    ...{ id: MODEL, object: 'model', created: CREATED, owned_by: 'vllm', root: MODEL },
    max_model_len: 1_000_000,
  };
}

function load({ running, heldTokens }: EngineCounts): object {
  return { num_reqs: running, num_waiting_reqs: 0, num_tokens: heldTokens };
}

function loadNow({ running, heldTokens }: EngineCounts): object {
  return {
    ...{ dp_rank: 0, num_running_reqs: running, num_waiting_reqs: 0, num_total_reqs: running },
    ...{ num_used_tokens: heldTokens, max_total_num_tokens: KV_TOKENS },
    ...{ token_usage: heldTokens / KV_TOKENS, max_running_requests: 4_096 },
  };
}

/** The series that an agent reads. Nothing is ever found in the cache: no two prompts of the benchmark are alike. */
function metrics(counts: EngineCounts): string {
  const labels = `{engine="0",model_name="${MODEL}"}`;
  const { running, promptTokens, generatedTokens, firstTokens, heldTokens } = counts;
  const config = `block_size="${BLOCK_TOKENS}",engine="0",num_gpu_blocks="${KV_TOKENS / BLOCK_TOKENS}"`;
  const plain: readonly (readonly [string, number])[] = [
    ['num_requests_running', running],
    ['num_requests_waiting', 0],
    ['kv_cache_usage_perc', heldTokens / KV_TOKENS],
    ['prompt_tokens_total', promptTokens],
    ['prompt_tokens_cached_total', 0],
    ['generation_tokens_total', generatedTokens],
    ['num_preemptions_total', 0],
    ['time_to_first_token_seconds_count', firstTokens],
    ['iteration_tokens_total_count', generatedTokens],
  ];
  return [
    `vllm:cache_config_info{${config}} 1.0`,
    `vllm:prompt_tokens_by_source_total{engine="0",model_name="${MODEL}",source="local_compute"} ${promptTokens}`,
    ...plain.map(([name, value]) => `vllm:${name}${labels} ${value}`),
    '',
  ].join('\n');
}
