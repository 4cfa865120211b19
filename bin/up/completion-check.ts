// Two tiny real completions of one prompt: the second finds the first in the KV cache, so an engine that can tell
// cached tokens tells them now (some versions leave the member out while it is zero).

import { ask, parsed } from './ask.ts';
import type { DetectOptions, EngineFacts, Finding } from './facts.ts';

/** Long enough for several KV blocks of the usual sizes. */
const PROMPT = Array.from({ length: 96 }, (_, i) => `spillway ${i}`).join(' ');

/** Enough for a time between tokens. */
const TOKENS = 3;

/** What has to be switched on for it. */
const CACHED_TOKENS: Readonly<Record<EngineFacts['kind'], string>> = {
  vllm: '--enable-prompt-tokens-details',
  sglang: '--enable-cache-report',
  tgi: 'cached tokens in its usage (no version has them)',
  llamacpp: 'cached tokens in its usage',
  generic: 'cached tokens in its usage',
};

export async function completionFindings(
  options: DetectOptions & { readonly model: string; readonly kind: EngineFacts['kind'] },
): Promise<Finding[]> {
  await complete(options);
  const usage = await complete(options);
  if (usage === null) {
    return [
      {
        missing: 'an answer to a short completion',
        cost: 'whether it reports cached tokens could not be checked',
      },
    ];
  }
  const details = usage['prompt_tokens_details'];
  if (typeof details === 'object' && details !== null && 'cached_tokens' in details) return [];
  return [
    {
      missing: CACHED_TOKENS[options.kind],
      cost: 'predicted cache hits cannot be compared with real ones: predictions stay uncorrected, and usage shows clients no cached_tokens',
    },
  ];
}

/** The answer's `usage`; null when there was no good answer. */
async function complete(
  options: DetectOptions & { readonly model: string },
): Promise<Record<string, unknown> | null> {
  const { model, timeoutMs } = options;
  const body = JSON.stringify({ model, prompt: PROMPT, max_tokens: TOKENS, temperature: 0 });
  try {
    const question = { path: '/v1/completions', body };
    const { status, text } = await ask(question, { ...options, timeoutMs: timeoutMs * 4 });
    const usage = parsed(text)?.['usage'];
    const good = status === 200 && typeof usage === 'object' && usage !== null;
    return good ? (usage as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
