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

const NAME = '"usage"';
/** Bytes from the name of the member to the end of the answer in which it is looked for. */
const END_BYTES = 1_024;
/** The member's object, and behind it nothing but plain members of the object that it stands in: the outermost. */
const AT_END =
  /^"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})\s*(?:,\s*"[^"\\]*"\s*:\s*(?:null|true|false|[\d.eE+-]+|"[^"\\]*")\s*)*\}\s*$/;

/**
 * The usage of a whole answer without parsing the rest of it: undefined where it does not stand near the end, as engines
 * have it, and the answer has to be read as a whole.
 */
export function usageAtEnd(body: Buffer): Usage | null | undefined {
  const at = body.lastIndexOf(NAME);
  if (at < 0 || body.length - at > END_BYTES) return undefined;
  const text = AT_END.exec(body.toString('utf8', at))?.[1];
  return text === undefined ? undefined : usageOf(parse(text));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Braces that were no JSON: it says nothing of usage.
    return null;
  }
}

function count(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null;
}
