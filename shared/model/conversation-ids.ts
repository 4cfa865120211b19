// Where clients say which conversation a request is of: what libraries and coding agents send without being asked. Names of
// persons (`user`, `safety_identifier`) are none of these: one person has many conversations.

/** Where ids are looked for: headers first, each list in its order. The first that is usable counts. */
export interface ConversationIdSources {
  /** In lower case. */
  readonly headers: readonly string[];
  /** Members of the body: a name, or `metadata.` and one. A text, or an object with a text `id`. */
  readonly members: readonly string[];
}

/** Characters of an id at most; a longer one is none. */
export const CONVERSATION_ID_MAX = 256;

export const CONVERSATION_IDS: ConversationIdSources = {
  headers: [
    'x-spillway-conversation-id',
    'x-conversation-id',
    'x-session-id', // OpenCode, OpenRouter, vLLM
    'x-claude-code-session-id',
    'session-id', // Codex
    'session_id',
    'x-session-affinity',
    'x-litellm-session-id',
    'x-smg-routing-key',
    'x-dynamo-session-id',
  ],
  members: [
    'conversation',
    'metadata.conversation_id',
    'metadata.session_id',
    'prompt_cache_key',
    'session_id',
  ],
};
