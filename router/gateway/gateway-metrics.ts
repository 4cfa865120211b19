// What the way of a request counts, in the words of both tiers. Each tier's table has a row for every name.

export type GatewayMetric =
  | 'requests_total'
  | 'errors_total'
  | 'ttft_seconds'
  | 'inter_token_seconds'
  | 'queue_wait_seconds'
  | 'decisions_total'
  | 'retries_total'
  | 'sheds_total'
  | 'client_aborts_total'
  | 'late_errors_total'
  | 'interrupted_streams_total'
  | 'limit_hits_total'
  | 'bugs_total'
  | 'prefix_predicted_tokens_total'
  | 'prefix_reported_tokens_total'
  | 'prompt_tokens_total'
  | 'completion_tokens_total'
  | 'ttft_prediction_error_seconds'
  | 'ttft_prediction_error_ratio';
