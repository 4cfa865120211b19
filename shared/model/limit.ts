// What is bounded and counted when the bound is met: `spillway_limit_hits_total`, by these names as they stand.

export const LIMITS = [
  // at the door
  'connections', // open connections of a listener
  'header_bytes', // a request's headers
  'chunk_extensions', // of a request's body in chunks
  'request_timeout', // from a request's first byte to its last
  'open_requests',
  'body_bytes', // one request's body
  'body_ratio', // a compressed body, once decoded
  'body_bytes_max', // all bodies in memory
  'json_depth',
  'prompts', // elements of a request's prompt list
  'conversation_id', // characters of an id that a client gave its conversation
  'crowded_conversation_id', // more requests under one id than a conversation has: it is left out of account
  // on the way
  'queue', // requests or bytes that wait
  'new_conversation_wait', // a new conversation that entered without KV room
  'retry_budget',
  'answer_bytes_max', // answers that are held until they are whole
  'client_stall', // a client that takes nothing of its answer
  // what is remembered
  'prefix_index_bytes',
  'replicas',
  'model_names', // names that a pool's replicas report
  // what agents say
  'prefix_gap', // deltas of a prefix index that do not follow each other
  'foreign_report', // about a replica of another link
  'pool_move', // a replica that another pool has, linked or with requests open
  'link_targets', // ranks of one agent's engines together
  'report_order', // a report older than one before it on its link
  'ack_beyond', // a report that has seen what was never sent
  'prefix_snapshots', // snapshots of prefixes over one link
  // what routers of a region tell each other
  'siblings', // routers that are heard at a time
  'sibling_sends', // open sends of one of them
  // what a region and the global tier say to each other
  'region_pools', // pools of one region
  'credit_accounts', // global routers that ask for credit
  'away_conversations', // conversations that are remembered because they live away from home
] as const;

export type LimitName = (typeof LIMITS)[number];
