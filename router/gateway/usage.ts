// Token usage as engines write it, read leniently: what is not said is null, and an answer without usage
// is still an answer.

import type { Usage } from '../../shared/protocol/messages.ts';
import { isObject } from './canonical.ts';

export function usageOf(value: unknown): Usage | null {
  if (!isObject(value)) return null;
  const promptTokens = count(value['prompt_tokens']);
  if (promptTokens === null) return null;
  const details = value['prompt_tokens_details'];
  return {
    promptTokens,
    cachedTokens: isObject(details) ? count(details['cached_tokens']) : null,
    completionTokens: count(value['completion_tokens']) ?? 0,
  };
}

function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
