// Requests whose answers were recorded: which recording, and how a live answer must be like it.

import type { Call } from './client.ts';
import { freshText, userMessage } from './prompts.ts';
import type { ConformanceSubject } from './subject.ts';

export interface Case {
  readonly rule: string;
  readonly recording: string;
  readonly path: string;
  readonly like: 'words' | 'shape';
  readonly call?: (subject: ConformanceSubject) => Call;
}

const chat =
  (changes: object): NonNullable<Case['call']> =>
  ({ model }) => ({
    body: { model, messages: userMessage(freshText(40)), max_tokens: 4, ...changes },
  });

export const CHAT = '/v1/chat/completions';

export const ANSWERS: readonly Case[] = [
  {
    rule: 'a chat answer',
    recording: 'chat-first-turn.http',
    path: CHAT,
    like: 'shape',
    call: chat({}),
  },
  {
    rule: 'a chat answer under a salt',
    recording: 'chat-cache-salt.http',
    path: CHAT,
    like: 'shape',
    call: chat({ cache_salt: 'tenant' }),
  },
  {
    rule: 'a completion',
    recording: 'completion.http',
    path: '/v1/completions',
    like: 'shape',
    call: ({ model }) => ({ body: { model, prompt: freshText(20), max_tokens: 4 } }),
  },
  {
    rule: 'an answer to a request with a member that nobody knows',
    recording: 'error-unknown-field.http',
    path: CHAT,
    like: 'shape',
    call: chat({ max_tokens: 1, no_such_member: 1 }),
  },
  {
    rule: 'an Anthropic message',
    recording: 'messages.http',
    path: '/v1/messages',
    like: 'shape',
    call: ({ model }) => ({
      body: { model, max_tokens: 4, messages: userMessage(freshText(20)) },
    }),
  },
  {
    rule: 'a response',
    recording: 'responses.http',
    path: '/v1/responses',
    like: 'shape',
    call: ({ model }) => ({ body: { model, input: freshText(20), max_output_tokens: 4 } }),
  },
  { rule: 'the version', recording: 'version.http', path: '/version', like: 'words' },
  { rule: 'the load', recording: 'load.http', path: '/load', like: 'words' },
  {
    rule: 'token ids of a text',
    recording: 'tokenize.http',
    path: '/tokenize',
    like: 'shape',
    call: ({ model }) => ({ body: { model, prompt: 'The sea is old.' } }),
  },
  {
    rule: 'the text of token ids',
    recording: 'detokenize.http',
    path: '/detokenize',
    like: 'shape',
    call: ({ model }) => ({ body: { model, tokens: [1_200, 1_300] } }),
  },
  {
    rule: 'a refusal to render',
    recording: 'render.http',
    path: '/v1/chat/completions/render',
    like: 'words',
    call: chat({}),
  },
];

export const ERRORS: readonly Case[] = [
  {
    rule: 'a model that is not served',
    recording: 'error-unknown-model.http',
    path: CHAT,
    like: 'words',
    call: chat({ model: 'nope' }),
  },
  {
    rule: 'a negative temperature',
    recording: 'error-bad-temperature.http',
    path: CHAT,
    like: 'words',
    call: chat({ temperature: -1 }),
  },
  {
    rule: 'a body that is not called JSON',
    recording: 'error-content-type.http',
    path: CHAT,
    like: 'words',
    call: () => ({ body: '{}', headers: { 'content-type': 'text/plain' } }),
  },
  {
    rule: 'a prompt longer than the context',
    recording: 'error-context-too-long.http',
    path: CHAT,
    like: 'words',
    call: (subject) => ({
      body: {
        model: subject.model,
        messages: userMessage(freshText(Math.ceil(subject.sizes.maxModelLen * 1.3))),
        max_tokens: 4,
      },
    }),
  },
  {
    rule: 'an empty conversation',
    recording: 'error-empty-messages.http',
    path: CHAT,
    like: 'words',
    call: chat({ messages: [] }),
  },
  {
    rule: 'JSON that breaks off',
    recording: 'error-malformed-json.http',
    path: CHAT,
    like: 'shape',
    call: () => ({ body: '{"model": "' }),
  },
  {
    rule: 'more tokens than the context asked for',
    recording: 'error-max-tokens-too-large.http',
    path: CHAT,
    like: 'words',
    call: chat({ max_tokens: 99_999_999 }),
  },
  {
    rule: 'a method that the path does not take',
    recording: 'error-method.http',
    path: CHAT,
    like: 'words',
  },
  {
    rule: 'a chat without messages',
    recording: 'error-missing-messages.http',
    path: CHAT,
    like: 'words',
    call: ({ model }) => ({ body: { model } }),
  },
  {
    rule: 'a path that does not exist',
    recording: 'error-not-found.http',
    path: '/v1/nothing',
    like: 'words',
  },
  {
    rule: 'messages that are no list',
    recording: 'error-wrong-type.http',
    path: CHAT,
    like: 'words',
    call: chat({ messages: 'x' }),
  },
];
