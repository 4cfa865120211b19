// A tool that the request says is to be called is called, whole and streamed, by SGLang and TGI alike but for the word
// that the answer ends with.

import { describe, expect, it } from 'vitest';

import { answered, dataOf, openEngines } from './test-harness.ts';

const start = openEngines();
const NAMED = { type: 'function', function: { name: 'look' } };

function asking(tool_choice: unknown): object {
  const parameters = { type: 'object', properties: { city: { type: 'string' } } };
  return {
    messages: [{ role: 'user', content: 'Tell me of the sea. '.repeat(100) }],
    max_tokens: 200,
    tools: [{ type: 'function', function: { name: 'look', parameters } }],
    tool_choice,
  };
}

describe.each([
  { kind: 'sglang', finish: 'tool_calls' },
  { kind: 'tgi', finish: 'stop' },
] as const)('$kind', ({ kind, finish }) => {
  it.each([
    ['required', 'required'],
    ['named', NAMED],
  ])('calls a tool that is %s, whole and streamed', async (_how, tool_choice) => {
    const test = await start({ kind });
    const body = asking(tool_choice);
    const [choice] = JSON.parse((await answered(test, body)).text).choices;
    const [called] = choice.message.tool_calls;
    expect(called.function.name).toBe('look');
    expect(JSON.parse(called.function.arguments)).toEqual({ city: 'sea' });
    expect(choice.message.content ?? '').toBe('');
    expect(choice.finish_reason).toBe(finish);
    const { text } = await answered(test, { ...body, stream: true });
    const chunks = dataOf(text)
      .slice(0, -1)
      .map((event) => JSON.parse(event).choices[0]);
    const calls = chunks.flatMap(({ delta }) => delta.tool_calls ?? []);
    expect(calls.map((each) => each.function.name).filter(Boolean)).toEqual(['look']);
    const told = calls.map((each) => each.function.arguments).join('');
    expect(JSON.parse(told)).toEqual({ city: 'sea' });
    expect(chunks.every(({ delta }) => (delta.content ?? '') === '')).toBe(true);
    expect(chunks.at(-1).finish_reason).toBe(finish);
  });
});
