// Answers recorded from a real vLLM 0.32.0 (test/fixtures/vllm-0.32.0/SOURCES.md), as what a live answer must be like.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Answer } from './client.ts';
import { shapeOfText } from './shape.ts';

const FOLDER = join(import.meta.dirname, '..', 'fixtures', 'vllm-0.32.0');
/** Context of the engine that was recorded, tokens. */
const RECORDED_MODEL_LEN = 16_384;
/** About the connection and not the answer: it depends on what the client asked for. */
const OF_THE_CONNECTION = new Set(['connection', 'keep-alive', 'transfer-encoding']);

export interface Recorded {
  readonly status: number;
  readonly headers: readonly (readonly [string, string])[];
  readonly text: string;
}

export function recordedText(name: string): string {
  return readFileSync(join(FOLDER, name), 'utf8');
}

export function recordedAnswer(name: string): Recorded {
  const text = recordedText(name).replaceAll('\r\n', '\n');
  const gap = text.indexOf('\n\n');
  const [statusLine = '', ...lines] = text.slice(0, gap).split('\n');
  return {
    status: Number(statusLine.split(' ')[1]),
    headers: lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 1).trim()] as const;
    }),
    text: text.slice(gap + 2),
  };
}

/** Names of headers in order, those about the connection left out. */
export function headerNames(headers: readonly (readonly [string, string])[]): string[] {
  return headers.map(([name]) => name.toLowerCase()).filter((name) => !OF_THE_CONNECTION.has(name));
}

export function headerOf(
  headers: readonly (readonly [string, string])[],
  name: string,
): string | null {
  return headers.find(([each]) => each.toLowerCase() === name)?.[1] ?? null;
}

/** Status, header names and content type, as recorded. */
export function assertHeadLike(answer: Omit<Answer, 'text'>, recorded: Recorded): void {
  assert.equal(answer.status, recorded.status, 'status');
  assert.deepEqual(headerNames(answer.headers), headerNames(recorded.headers), 'header names');
  const type = headerOf(recorded.headers, 'content-type');
  assert.equal(headerOf(answer.headers, 'content-type'), type, 'content type');
}

/** The body's members in order, with the types of their values, as recorded. */
export function assertShapeLike(text: string, recorded: Recorded): void {
  assert.equal(shapeOfText(text), shapeOfText(recorded.text));
}

/** The body word for word, where the recorded context length is read as this engine's. */
export function assertTextLike(text: string, recorded: Recorded, maxModelLen: number): void {
  const expected = recorded.text
    .replaceAll(String(RECORDED_MODEL_LEN), String(maxModelLen))
    .replaceAll(String(RECORDED_MODEL_LEN + 1), String(maxModelLen + 1));
  assert.equal(text, expected);
}
