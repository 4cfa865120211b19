// Reads OpenAI's two generation requests for engines that say in their own words what is wrong: no model is asked for and
// no limit is looked at.

import { parseChat, parseCompletion, type Generation, type JsonObject } from './vllm/parse.ts';

type Needed =
  | 'prompts'
  | 'n'
  | 'maxTokens'
  | 'stream'
  | 'includeUsage'
  | 'continuousUsage'
  | 'cacheSalt';

/** What is to be generated, and how it is to be told. Lengths in tokens. */
export type OpenAiGeneration = Pick<Generation, Needed> &
  Partial<Omit<Generation, Needed | 'kind'>>;

export type OpenAiRead =
  | { readonly ok: true; readonly generation: OpenAiGeneration; readonly model: string }
  /** One line. */
  | { readonly ok: false; readonly words: string };

export function readOpenAi(kind: 'chat' | 'completion', body: JsonObject): OpenAiRead {
  const model = typeof body['model'] === 'string' ? body['model'] : '';
  const parse = kind === 'chat' ? parseChat : parseCompletion;
  const parsed = parse({ ...body, model }, { model, maxModelLen: Infinity });
  if (!parsed.ok) return { ok: false, words: wordsOf(parsed.reply.body) };
  const { kind: _, ...generation } = parsed.value;
  return { ok: true, generation, model };
}

function wordsOf(body: unknown): string {
  const error = (body as { error?: { message?: unknown } }).error;
  const text = typeof error?.message === 'string' ? error.message : 'wrong form';
  return text.replaceAll('\n', ' ');
}
