// What engines answer where a test chooses it. Each answer is a stream where one was asked for, and whole otherwise.

import type { ServerResponse } from 'node:http';
import {
  answerOf,
  chunk,
  DONE,
  statusOf,
  streamHead,
  streamOf,
  usageChunk,
  type Received,
  type Script,
} from '../e2e/scripted-engine.ts';

export const WORDS = ['one ', 'two ', 'three'] as const;
export const TEXT = WORDS.join('');

/** The words, with usage: 100 prompt tokens of which 64 were cached, one completion token a word. */
export const words: Script = (received, response) =>
  (streamed(received) ? streamOf(...WORDS) : answerOf(TEXT))(received, response);

/** What `numbers` answers: exact as 32-bit numbers too. */
export const NUMBERS = [0.5, -2];

/** An embedding, in base64 where that was asked for; 3 prompt tokens. */
export const numbers: Script = ({ body }, response) => {
  const { model, encoding_format: format } = JSON.parse(body.toString('utf8')) as {
    model: string;
    encoding_format?: string;
  };
  const bytes = Buffer.from(new Float32Array(NUMBERS).buffer).toString('base64');
  const data = [
    { object: 'embedding', index: 0, embedding: format === 'base64' ? bytes : NUMBERS },
  ];
  const usage = { prompt_tokens: 3, total_tokens: 3 };
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ object: 'list', model, data, usage }));
};

/** Ways in which an engine ends a stream behind its first two words. */
export const CUTS: readonly (readonly [string, (response: ServerResponse) => void])[] = [
  ['a reset connection', (response) => void response.socket?.resetAndDestroy()],
  ['an error event', (response) => void response.end(`${CORE_DEAD}${DONE}`)],
  ['a clean end without [DONE]', (response) => void response.end()],
  ['an abort', (response) => void response.end(chunk('', 'abort') + usageChunk(100, 64, 2) + DONE)],
];

const CORE_DEAD =
  'data: {"error":{"message":"EngineCore died","type":"InternalServerError","code":500}}\n\n';

/** Two words, and `end` once `when` has come. */
export function cutShort(
  end: (response: ServerResponse) => void,
  when: Promise<void> = Promise.resolve(),
): Script {
  return async (_received, response) => {
    twoWords(response);
    await when;
    end(response);
  };
}

/** Two words, and then nothing. */
export const stopped: Script = (_received, response) => twoWords(response);

/** A whole answer, longer than a router holds back, that breaks off. */
export const longAndCut: Script = (_received, response) => {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.write(`{"id":"c","object":"chat.completion","x":"${'x'.repeat(5 * 1024 * 1024)}`, () =>
    response.destroy(),
  );
};

/** As vLLM refuses a prompt; its `code` is a number. */
export const tooLong: Script = statusOf(
  400,
  JSON.stringify({
    error: {
      message:
        "This model's maximum context length is 32768 tokens. However, you requested 40000 tokens. Please reduce the length of the input messages.",
      type: 'BadRequestError',
      param: 'input_tokens',
      code: 400,
    },
  }),
);

const failure: Script = statusOf(500, '{"error":{"message":"x","type":"y","code":500}}');

/** Fails the first time, then says the words. */
export function failingOnce(): Script {
  let failed = false;
  return (received, response) => {
    if (failed) return words(received, response);
    failed = true;
    return failure(received, response);
  };
}

interface Noted {
  readonly script: Script;
  /** The request that came. */
  readonly received: Promise<Received>;
}

export interface Held extends Noted {
  /** Lets the request go on. */
  readonly release: () => void;
}

/** Answers by `then`, and shows what was asked. */
export function noted(then: Script): Noted {
  const { promise: received, resolve: came } = Promise.withResolvers<Received>();
  const script: Script = (request, response) => {
    came(request);
    return then(request, response);
  };
  return { script, received };
}

/** Says nothing until it is released, then answers by `then`. */
export function held(then: Script = words): Held {
  const { promise: gate, resolve: release } = Promise.withResolvers<void>();
  const waiting: Script = async (request, response) => {
    await gate;
    return then(request, response);
  };
  return { ...noted(waiting), release };
}

export function heldAndFailing(): Held {
  return held(failure);
}

function streamed({ body }: Received): boolean {
  return (JSON.parse(body.toString('utf8')) as { stream?: boolean }).stream === true;
}

function twoWords(response: ServerResponse): void {
  streamHead(response);
  response.write(chunk(WORDS[0]));
  response.write(chunk(WORDS[1]));
}
