// `/tokenize` in both forms, and `/detokenize`.

import { BEGIN_TOKEN, detokenize, renderChat, tokenize, tokenText } from '../../tokenizer.ts';
import type { Reply } from '../reply.ts';
import { readMessages, type ParseContext } from './parse.ts';
import { invalid, missing, modelFault, type JsonObject, type Problem } from './validation.ts';

export function tokenizeReply(body: JsonObject, context: ParseContext): Reply {
  const problems: Problem[] = [];
  const read = readTokens(body, problems);
  if (problems.length > 0) return invalid(problems);
  const fault = modelFault(body['model'], context);
  if (fault !== null) return fault;
  const tokens = read();
  const strings = body['return_token_strs'] === true;
  const answer = {
    count: tokens.length,
    max_model_len: context.maxModelLen,
    tokens,
    token_strs: strings ? tokens.map((id) => tokenText(id)) : null,
  };
  return { status: 200, body: answer };
}

function readTokens(body: JsonObject, problems: Problem[]): () => readonly number[] {
  const { prompt } = body;
  if (typeof prompt === 'string') {
    const begin = body['add_special_tokens'] === false ? [] : [BEGIN_TOKEN];
    return () => [...begin, ...tokenize(prompt)];
  }
  if (!Array.isArray(body['messages'])) {
    if (prompt === undefined) problems.push(missing('body.prompt', body));
    else {
      const msg = 'Input should be a valid string';
      problems.push({ type: 'string_type', loc: 'body.prompt', msg, input: prompt });
    }
  }
  const messages = readMessages(body, problems);
  const tools = Array.isArray(body['tools']) ? JSON.stringify(body['tools']) : null;
  const prompted = body['add_generation_prompt'] !== false;
  return () => {
    const tokens = renderChat(messages, tools);
    return prompted ? tokens : tokens.slice(0, -1);
  };
}

export function detokenizeReply(body: JsonObject, context: ParseContext): Reply {
  const { tokens } = body;
  if (tokens === undefined) return invalid([missing('body.tokens', body)]);
  if (!Array.isArray(tokens)) {
    const msg = 'Input should be a valid list';
    return invalid([{ type: 'list_type', loc: 'body.tokens', msg, input: tokens }]);
  }
  const wrong = tokens.findIndex((token) => !Number.isInteger(token));
  if (wrong >= 0) {
    const msg = 'Input should be a valid integer, unable to parse string as an integer';
    return invalid([
      { type: 'int_parsing', loc: `body.tokens.${wrong}`, msg, input: tokens[wrong] },
    ]);
  }
  const fault = modelFault(body['model'], context);
  return fault ?? { status: 200, body: { prompt: detokenize(tokens as number[]) } };
}
