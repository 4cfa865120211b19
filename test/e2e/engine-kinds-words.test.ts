// What SGLang, TGI and llama.cpp say where vLLM says something else, through the data path: what it means to the router,
// and what the client is told. The engines are scripted with the words of test/fixtures and of the engines' sources.

import OpenAI from 'openai';
import { request } from 'undici';
import { describe, expect, test } from 'vitest';
import { untilBroken } from './broken-answer.ts';
import { openGateways } from './gateways.ts';
import { chunk, DONE, statusOf, streamHead, streamOf, type Script } from './scripted-engine.ts';
import type { Harness } from './shell-harness.ts';

const { engineWith, gateway: gatewayTo } = openGateways();

async function gateway(...scripts: Script[]): Promise<Harness> {
  return gatewayTo(await Promise.all(scripts.map((script) => engineWith(script))));
}

/** A stream of exactly this text. */
function says(text: string): Script {
  return (_received, response) => {
    streamHead(response);
    response.end(text);
  };
}

function event(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}

const TGI_OVERLOADED = { error: 'Model is overloaded', error_type: 'overloaded' };
const TGI_FAILED = {
  error: 'Request failed during generation: Server error: CUDA error',
  error_type: 'generation',
};
const TGI_INVALID = {
  error: 'Input validation error: `inputs` must have less than 511 tokens. Given: 600',
  error_type: 'validation',
};
const SGLANG_FULL = {
  object: 'error',
  message: 'The request queue is full.',
  type: 'SERVICE_UNAVAILABLE',
  param: null,
  code: 503,
};
const SGLANG_INVALID = {
  object: 'error',
  message: "The input (9 tokens) is longer than the model's context length (8 tokens).",
  type: 'BadRequestError',
  param: null,
  code: 400,
};
const LLAMACPP_LOADING = {
  error: { message: 'Loading model', type: 'unavailable_error', code: 503 },
};

function ask(harness: Harness, stream: boolean) {
  const client = new OpenAI({ baseURL: `${harness.url}/v1`, apiKey: 'unused', maxRetries: 0 });
  const messages = [{ role: 'user' as const, content: 'hello' }];
  return client.chat.completions.create({ model: 'm', messages, stream }).withResponse();
}

function post(harness: Harness, stream: boolean) {
  return request(`${harness.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'hello' }], stream }),
  });
}

function resultOf(harness: Harness) {
  const ended = harness.core.events.find((each) => each.kind === 'attemptEnded');
  return ended?.kind === 'attemptEnded' ? ended.result : null;
}

describe('before the first token', () => {
  test.each<[string, Script, object]>([
    [
      'TGI is overloaded',
      says(event(TGI_OVERLOADED) + DONE),
      { kind: 'backPressure', status: 429 },
    ],
    [
      "SGLang's queue is full",
      says(event({ error: SGLANG_FULL }) + DONE),
      { kind: 'backPressure', status: 503 },
    ],
    [
      'a batch of TGI fails',
      says(event(TGI_FAILED) + DONE),
      { kind: 'serverFault', cause: 'error_event', detail: 'generation' },
    ],
    [
      'TGI is silent, then gone',
      (_r, res) => {
        streamHead(res);
        res.write(':\n\n:\n\n', () => res.socket?.destroy());
      },
      { kind: 'serverFault', cause: 'reset' },
    ],
    [
      'llama.cpp loads',
      statusOf(503, JSON.stringify(LLAMACPP_LOADING)),
      { kind: 'backPressure', status: 503 },
    ],
  ])('%s: another replica answers the stream', async (_name, script, result) => {
    const harness = await gateway(script, streamOf('ok'));
    const { data, response } = await ask(harness, true);
    let text = '';
    for await (const part of data as AsyncIterable<OpenAI.ChatCompletionChunk>) {
      text += part.choices[0]?.delta.content ?? '';
    }
    expect(text).toBe('ok');
    expect(response.headers.get('x-spillway-attempts')).toBe('2');
    expect(resultOf(harness)).toMatchObject(result);
  });

  test.each<[string, number, object, object]>([
    ['TGI is overloaded', 429, TGI_OVERLOADED, { kind: 'backPressure', status: 429 }],
    ['a batch of TGI fails', 424, TGI_FAILED, { kind: 'serverFault', cause: 'status' }],
    [
      "SGLang's queue is full",
      503,
      { ...SGLANG_FULL, type: '503' },
      { kind: 'backPressure', status: 503 },
    ],
  ])('%s: no replica is left to answer whole', async (_name, status, body, result) => {
    const harness = await gateway(statusOf(status, JSON.stringify(body)));
    await expect(ask(harness, false)).rejects.toMatchObject({ code: 'upstream_failed' });
    expect(resultOf(harness)).toMatchObject(result);
  });

  test('comments of an engine are neither a first token nor passed on', async () => {
    const harness = await gateway(says(`:\n\n:\n\n${chunk('a')}:\n\n${chunk('b', 'stop')}${DONE}`));
    const answer = await post(harness, true);
    expect(await answer.body.text()).toBe(chunk('a') + chunk('b', 'stop') + DONE);
    const firsts = harness.core.events.filter(({ kind }) => kind === 'firstToken');
    expect(firsts).toHaveLength(1);
  });
});

describe("a request's own fault is told in OpenAI's shape", () => {
  test.each<[string, boolean, Script, number, object]>([
    [
      'TGI, in a stream',
      true,
      says(event(TGI_INVALID) + DONE),
      422,
      { message: TGI_INVALID.error, type: 'invalid_request_error', code: 'validation' },
    ],
    [
      'TGI, whole',
      false,
      statusOf(422, JSON.stringify(TGI_INVALID)),
      422,
      { message: TGI_INVALID.error, code: 'validation' },
    ],
    [
      'TGI, a body of the wrong form',
      false,
      statusOf(422, 'Failed to deserialize the JSON body', { 'content-type': 'text/plain' }),
      422,
      { message: 'Failed to deserialize the JSON body', type: 'invalid_request_error' },
    ],
    [
      'SGLang, whole',
      false,
      statusOf(400, JSON.stringify(SGLANG_INVALID)),
      400,
      { message: SGLANG_INVALID.message, type: 'BadRequestError', param: null },
    ],
    [
      'SGLang, to a stream that has not begun',
      true,
      statusOf(400, JSON.stringify(SGLANG_INVALID)),
      400,
      { message: SGLANG_INVALID.message, type: 'BadRequestError' },
    ],
  ])('%s', async (_name, stream, script, status, error) => {
    const harness = await gateway(script, streamOf('never asked'));
    const answer = await post(harness, stream);
    expect(answer.statusCode).toBe(status);
    expect(await answer.body.json()).toMatchObject({ error });
    expect(answer.headers['x-should-retry']).toBe('false');
    expect(resultOf(harness)).toEqual({ kind: 'clientError', status });
  });
});

describe('in mid-stream', () => {
  test.each<[string, object]>([
    ['a batch of TGI fails', TGI_FAILED],
    ['TGI says overloaded', TGI_OVERLOADED],
    ['a scheduler of SGLang aborts', { error: { ...SGLANG_FULL, message: 'aborted' } }],
    ['SGLang fails flat', { ...SGLANG_INVALID, code: 500 }],
  ])('%s: an error in the words of the client, and no end before it', async (_name, body) => {
    const harness = await gateway(says(chunk('a') + event(body) + DONE), streamOf('never asked'));
    const text = await untilBroken((await post(harness, true)).body);
    const [first, error, rest] = text.split('\n\n');
    expect(`${first}\n\n`).toBe(chunk('a'));
    expect(JSON.parse((error ?? '').slice('data: '.length))).toMatchObject({
      error: { code: 'stream_interrupted', type: 'server_error' },
    });
    expect(rest).toBe('');
    expect(text).not.toContain('CUDA');
  });
});
