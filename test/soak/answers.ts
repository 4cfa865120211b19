// What the simulated engine must answer: a function of the prompt alone, so that every answer of a soak is checked word by
// word, with no memory of earlier ones. Tokens are four characters each.

import { answerToken } from '../../sim/engine/answers.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { tokenSequence } from '../../sim/engine/sequence.ts';
import { renderChat, tokenText } from '../../sim/engine/tokenizer.ts';

export interface ChatMessage {
  readonly role: 'user' | 'assistant';
  readonly content: string;
}

/** The first `tokens` tokens of the answer to this conversation. */
export function expectedAnswer(messages: readonly ChatMessage[], tokens: number): string {
  const template = messages.map(({ role, content }) => ({
    role,
    pieces: [{ kind: 'text' as const, text: content }],
  }));
  const prompt = Uint32Array.from(renderChat(template, null));
  const { promptKey } = tokenSequence(prompt, BLOCK_TOKENS);
  let text = '';
  for (let at = 0; at < tokens; at += 1) text += tokenText(answerToken(promptKey, at));
  return text;
}

const BLOCK_TOKENS = engineProfile('demo')?.blockTokens ?? 16;
