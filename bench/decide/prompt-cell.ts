// What is done to a prompt before it is decided about, part by part: the JSON parse of the body, its canonical bytes,
// and the chain of hashes over these. A conversation of several turns, of so many tokens at four bytes each.

import { Canonicaliser, isObject, type JsonObject } from '../../router/gateway/canonical.ts';
import {
  createChainHasher,
  type ChainHasher,
  type ChainInput,
} from '../../shared/lib/chain-hash.ts';
import { quantile, round, type Row } from './rows.ts';

const BYTES_PER_TOKEN = 4;
const MESSAGE_BYTES = 4_096;
const ROUNDS = 300;
const SEED = { saltGroup: 'tenant', lora: null };

export async function promptRows(kTokens: number): Promise<Row[]> {
  const cell = `prompt-${kTokens}k`;
  const text = JSON.stringify(bodyOf(kTokens * 1_024 * BYTES_PER_TOKEN));
  const body = parsed(text);
  const messages = (body['messages'] as readonly unknown[]).filter(isObject);
  const hasher = await createChainHasher();
  const caught = new Catching(hasher);
  const canonicaliser = new Canonicaliser(caught);
  canonicaliser.chat(body, messages, SEED);
  const { input } = caught;
  if (input === null) throw new Error('nothing was hashed');
  const chain = hasher.chain(input);
  caught.passes = false;
  caught.answer = chain;
  const arm = (name: string, run: () => unknown): Row => ({ cell, arm: name, ...timesOf(run) });
  return [
    arm('json-parse', () => parsed(text)),
    arm('canonical', () => canonicaliser.chat(body, messages, SEED)),
    arm('chain', () => hasher.chain(input)),
  ];
}

/** Hashes at first and keeps the bytes; then answers at once, so that what is left is the bytes alone. */
class Catching implements ChainHasher {
  input: ChainInput | null = null;
  passes = true;
  answer: ReturnType<ChainHasher['chain']> | null = null;
  readonly #hasher: ChainHasher;

  constructor(hasher: ChainHasher) {
    this.#hasher = hasher;
  }

  chain(input: ChainInput): ReturnType<ChainHasher['chain']> {
    if (!this.passes && this.answer !== null) return this.answer;
    this.input = { ...input, bytes: input.bytes.slice(0, input.length) };
    return this.#hasher.chain(input);
  }

  open(...of: Parameters<ChainHasher['open']>): ReturnType<ChainHasher['open']> {
    return this.#hasher.open(...of);
  }

  digestInto(bytes: Uint8Array, target: Uint8Array, offset: number): void {
    this.#hasher.digestInto(bytes, target, offset);
  }
}

function parsed(text: string): JsonObject {
  const body: unknown = JSON.parse(text);
  if (!isObject(body)) throw new Error('no object');
  return body;
}

function bodyOf(bytes: number): object {
  const messages: object[] = [];
  for (let left = bytes; left > 0; left -= MESSAGE_BYTES) {
    const content = 'lorem ipsum '.repeat(Math.ceil(Math.min(left, MESSAGE_BYTES) / 12));
    messages.push({ role: messages.length % 2 === 0 ? 'user' : 'assistant', content });
  }
  return { model: 'model', stream: true, max_tokens: 256, messages };
}

function timesOf(run: () => unknown): { usP50: number; usP99: number } {
  const times = new Float64Array(ROUNDS);
  for (let k = -ROUNDS; k < ROUNDS; k += 1) {
    const begun = performance.now();
    run();
    if (k >= 0) times[k] = 1_000 * (performance.now() - begun);
  }
  times.sort();
  return { usP50: round(quantile(times, 0.5)), usP99: round(quantile(times, 0.99)) };
}
