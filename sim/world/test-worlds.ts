// Worlds that the proofs share: small profiles that load at once, and what a proof reads from a router.

import { ENGINE_PROFILES, type EngineProfile } from '../engine/profiles.ts';
import { CHAT_SHAPE, type ConversationShape } from '../workloads/conversations.ts';

/** 5,000 prefill tokens a second, 65k tokens of KV, ready in moments. */
export const DEMO: EngineProfile = { ...ENGINE_PROFILES['demo']!, loadingMs: 500 };

/** Short talks of a few thousand tokens. */
export const SMALL_TALK: ConversationShape = {
  ...CHAT_SHAPE,
  firstTokens: [100, 1_500],
  turnTokens: [20, 200],
  answerTokens: [5, 60],
  turns: [1, 6],
  thinkMs: [200, 3_000],
};
