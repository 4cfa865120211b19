// The canonical bytes of a prompt: everything that a chat template would see, in its order, so that equal
// bytes mean an equal prompt and a longer conversation extends the bytes of a shorter one.
//
//   prompt   = lead field* message* [tail field*]
//   field    = F8 name FE json FF
//   message  = F9 role FE part* member* FD
//   part     = FB text FF  |  FC kind FE length(4) hash(8)
//   member   = FA name FE json FF
//
// Text is UTF-8, in which F8…FF never occur: the marks cannot be forged by content, and no length has to
// stand before a text, so two messages that only differ at their end share the chunks before it. A
// non-text part has its length and hash in fixed width. What changes only the end of the rendered prompt
// (`add_generation_prompt`, `continue_final_message`) stands at the end.

import type { ChainHasher, ChainSeed } from '../../shared/lib/chain-hash.ts';
import type { PromptChain } from '../../shared/model/prompt.ts';
import type { LiftedText, LiftedTexts } from './lifted-body.ts';
import {
  chainInSteps,
  PART_DIGEST_BYTES,
  PART_SLICE_CHARS,
  type LaidPrompt,
  type PromptMark,
} from './long-prompt.ts';

const FIELD = 0xf8;
const MESSAGE = 0xf9;
const MEMBER = 0xfa;
const TEXT = 0xfb;
const PART = 0xfc;
const MESSAGE_END = 0xfd;
const NAME_END = 0xfe;
const END = 0xff;

/** Request members that a template sees before the messages. */
const LEAD_FIELDS = [
  'chat_template',
  'chat_template_kwargs',
  'reasoning_effort',
  'documents',
  'tools',
  'add_special_tokens',
  'truncate_prompt_tokens',
  'mm_processor_kwargs',
] as const;

const TEXT_PARTS = new Set(['text', 'input_text', 'output_text', 'refusal', 'thinking']);

/** Part type → kind. Anything else is `other`: kinds are metric labels and ledger keys, so they are few. */
const PART_KINDS: ReadonlyMap<string, string> = new Map([
  ['image_url', 'image'],
  ['input_image', 'image'],
  ['image_pil', 'image'],
  ['image_embeds', 'image'],
  ['image', 'image'],
  ['audio_url', 'audio'],
  ['input_audio', 'audio'],
  ['audio', 'audio'],
  ['video_url', 'video'],
  ['video', 'video'],
  ['file', 'file'],
]);

/** Scratch larger than this is given back after the request. */
const KEEP_BYTES = 4 * 1024 * 1024;

const TEXT_KEYS = 'text/1';
const ID_KEYS = 'ids/1';

export type JsonObject = Readonly<Record<string, unknown>>;
export type PromptInput = string | readonly number[];

interface LiftedContext {
  readonly texts: LiftedTexts;
  readonly seed: ChainSeed;
}

/** Turns prompts into chains. Keeps one scratch buffer between calls; calls never interleave. */
export class Canonicaliser {
  private readonly hasher: ChainHasher;
  private scratch = Buffer.allocUnsafe(64 * 1024);
  private length = 0;
  private partBytes = 0;
  private parts: Record<string, number> = {};
  private boundaries: number[] = [];
  /** Of the prompt that is laid out now; null where its strings are all that there is of it. */
  private texts: LiftedTexts | null = null;
  private marks: PromptMark[] = [];

  constructor(hasher: ChainHasher) {
    this.hasher = hasher;
  }

  /** The chain of a chat request. `messages` are objects with a string `role`. */
  chat(body: JsonObject, messages: readonly JsonObject[], seed: ChainSeed): PromptChain {
    this.layChat(body, messages);
    return this.finish(seed);
  }

  /** The chain of one completion prompt: its text as it is, or its token ids in the `ids/1` key space. */
  completion(prompt: PromptInput, body: JsonObject, seed: ChainSeed): PromptChain {
    if (typeof prompt !== 'string') return this.tokenIds(prompt, seed);
    this.layCompletion(prompt, body);
    return this.finish(seed);
  }

  /** As `chat`, of a body whose long texts were lifted out. */
  liftedChat(
    body: JsonObject,
    messages: readonly JsonObject[],
    context: LiftedContext,
  ): Generator<void, PromptChain> {
    return this.inSteps(context, () => this.layChat(body, messages));
  }

  /** As `completion`, likewise. */
  liftedCompletion(
    prompt: string,
    body: JsonObject,
    context: LiftedContext,
  ): Generator<void, PromptChain> {
    return this.inSteps(context, () => this.layCompletion(prompt, body));
  }

  private inSteps({ texts, seed }: LiftedContext, lay: () => void): Generator<void, PromptChain> {
    this.texts = texts;
    try {
      lay();
      return chainInSteps(this.takeLaid(), { hasher: this.hasher, seed, body: texts.body });
    } finally {
      this.texts = null;
      this.marks = [];
    }
  }

  private layChat(body: JsonObject, messages: readonly JsonObject[]): void {
    this.reset();
    for (const name of LEAD_FIELDS) this.field(name, body[name]);
    if (body['tool_choice'] === 'none') this.field('tool_choice', 'none');
    messages.forEach((message, index) => {
      if (index > 0 && message['role'] === 'assistant') this.boundaries.push(this.length);
      this.message(message);
    });
    if (body['add_generation_prompt'] === false) this.field('add_generation_prompt', false);
    if (body['continue_final_message'] === true) this.field('continue_final_message', true);
  }

  private layCompletion(prompt: string, body: JsonObject): void {
    this.reset();
    this.field('completion', true);
    this.field('add_special_tokens', body['add_special_tokens']);
    this.field('truncate_prompt_tokens', body['truncate_prompt_tokens']);
    this.text(prompt);
  }

  private tokenIds(ids: readonly number[], seed: ChainSeed): PromptChain {
    this.reset();
    this.ensure(ids.length * 4);
    for (const id of ids) {
      this.scratch.writeUInt32LE(id >>> 0, this.length);
      this.length += 4;
    }
    return this.finish(seed, ids.length);
  }

  private message(message: JsonObject): void {
    this.byte(MESSAGE);
    this.text(String(message['role']));
    this.byte(NAME_END);
    this.content(message['content']);
    for (const [name, value] of Object.entries(message)) {
      if (name === 'role' || name === 'content') continue;
      this.named(MEMBER, name, value);
    }
    this.byte(MESSAGE_END);
  }

  private content(content: unknown): void {
    if (content === null || content === undefined) return;
    if (typeof content === 'string') return this.textPart(content);
    if (!Array.isArray(content)) return this.named(MEMBER, 'content', content);
    for (const part of content) this.part(part);
  }

  private part(part: unknown): void {
    if (typeof part === 'string') return this.textPart(part);
    if (!isObject(part)) return this.named(MEMBER, 'part', part);
    const type = typeof part['type'] === 'string' ? part['type'] : 'text';
    const text = part['text'] ?? part[type];
    if (TEXT_PARTS.has(type) && typeof text === 'string') return this.textPart(text);
    this.nonText(PART_KINDS.get(type) ?? 'other', part);
  }

  private textPart(text: string): void {
    this.byte(TEXT);
    this.text(text);
    this.byte(END);
  }

  private nonText(kind: string, part: JsonObject): void {
    const before = this.length;
    const source = JSON.stringify(part);
    this.byte(PART);
    this.text(kind);
    this.byte(NAME_END);
    const parts = this.texts?.partsOf(source) ?? [source];
    if (parts.length > 1) this.digestLater(parts);
    else this.digest(source);
    this.partBytes += this.length - before;
    this.parts[kind] = (this.parts[kind] ?? 0) + 1;
  }

  /** Length and hash of a long string, slice by slice through the scratch space behind the prompt. */
  private digest(source: string): void {
    this.ensure(PART_DIGEST_BYTES);
    this.scratch.writeUInt32LE(source.length >>> 0, this.length);
    const at = this.length + 4;
    this.scratch.fill(0, at, at + 8);
    for (let from = 0; from < source.length; from += PART_SLICE_CHARS) {
      this.length = at + 8;
      this.text(source.slice(from, from + PART_SLICE_CHARS));
      const slice = this.scratch.subarray(at, this.length);
      this.hasher.digestInto(slice, this.scratch, at);
    }
    this.length = at + 8;
  }

  private digestLater(source: readonly (string | LiftedText)[]): void {
    this.marks.push({ at: this.length, kind: 'part', source });
    this.ensure(PART_DIGEST_BYTES);
    this.length += PART_DIGEST_BYTES;
  }

  private field(name: string, value: unknown): void {
    this.named(FIELD, name, value);
  }

  /** Absent and null are the same to a template, and an empty list of tools is none. */
  private named(mark: number, name: string, value: unknown): void {
    if (value === undefined || value === null) return;
    if (Array.isArray(value) && value.length === 0) return;
    this.byte(mark);
    this.text(name);
    this.byte(NAME_END);
    this.json(JSON.stringify(value));
    this.byte(END);
  }

  private json(source: string): void {
    if (this.texts === null) return this.text(source);
    for (const part of this.texts.partsOf(source)) {
      if (typeof part === 'string') this.text(part);
      else this.marks.push({ at: this.length, kind: 'json', text: part });
    }
  }

  private byte(value: number): void {
    this.ensure(1);
    this.scratch[this.length] = value;
    this.length += 1;
  }

  private text(value: string): void {
    const lifted = this.texts?.named(value) ?? null;
    if (lifted !== null) {
      this.marks.push({ at: this.length, kind: 'text', text: lifted });
      return;
    }
    this.ensure(value.length < 1024 ? value.length * 3 : Buffer.byteLength(value));
    this.length += this.scratch.write(value, this.length);
  }

  private ensure(more: number): void {
    const needed = this.length + more;
    if (needed <= this.scratch.length) return;
    const grown = Buffer.allocUnsafe(Math.max(needed, this.scratch.length * 2));
    this.scratch.copy(grown, 0, 0, this.length);
    this.scratch = grown;
  }

  private reset(): void {
    this.length = 0;
    this.partBytes = 0;
    this.parts = {};
    this.boundaries = [];
  }

  private takeLaid(): LaidPrompt {
    const { marks, boundaries, partBytes, parts } = this;
    const bytes = Buffer.from(this.scratch.subarray(0, this.length));
    return { bytes, marks, boundaries, facts: { keySpace: TEXT_KEYS, partBytes, parts } };
  }

  private finish(seed: ChainSeed, tokenIds?: number): PromptChain {
    const chain = this.hasher.chain({
      bytes: this.scratch,
      length: this.length,
      seed,
      boundaries: this.boundaries,
      parts: this.parts,
      keySpace: tokenIds === undefined ? TEXT_KEYS : ID_KEYS,
      partBytes: this.partBytes,
      ...(tokenIds === undefined ? {} : { tokenIds }),
    });
    if (this.scratch.length > KEEP_BYTES) this.scratch = Buffer.allocUnsafe(64 * 1024);
    return chain;
  }
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
