// The conversations of a load and a seed, made whole before anything runs: the same bytes at the same times for every arm.
//
// The assistant's part of a history is written beforehand as well, as long as the answer that was asked for: what the engine
// answers is noise, differs from run to run, and is tokenised otherwise when it comes back, so that its own words would
// never be found in the cache. Each answer has its full length (`ignore_eos`). All turns are streamed and ask for usage.
//
// A turn draws the door that it goes through where an arm has several: a balancer before two routers knows no conversations.

import { createHash } from 'node:crypto';
import { seededRandom, type Random } from '../../shared/lib/random.ts';
import {
  planConversations,
  type LoadShape,
  type PlannedConversation,
} from '../../test/engines/conversations.ts';
import { prose } from '../../test/engines/prose.ts';
import { MODEL } from '../../test/engines/vllm.ts';
import type { Load } from './loads.ts';

export interface Workload {
  readonly talks: readonly Talk[];
  /** Digest of all that is sent and when. */
  readonly digest: string;
}

export interface Talk {
  readonly index: number;
  /** ms from the start of the load. */
  readonly startAtMs: number;
  /** What a proxy may hash to keep a conversation in its place. */
  readonly session: string;
  /** Whether it begins with the system prompt that half of the conversations share. */
  readonly shared: boolean;
  readonly turns: readonly Turn[];
}

export interface Turn {
  /** ms that the person reads and writes before it. */
  readonly thinkMs: number;
  /** In [0, 1): which of an arm's doors it goes through. */
  readonly door: number;
  readonly body: Buffer;
}

interface Message {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

const BYTES_PER_TOKEN = 3.4;
const WARM_UP: LoadShape = { conversations: 6, perSecond: 2, turns: 2 };
/** Half a minute: what a router does in its first seconds alone is over. */
const LONG_WARM_UP: LoadShape = { conversations: 11, perSecond: 0.4, turns: 4 };

export function workloadOf(load: Load, seed: number): Workload {
  return build(`${load.name} ${seed}`, load.shape);
}

/** What goes through every arm before it is measured: routers learn what engines are like, and code is compiled. */
export function warmUpOf(name: string, long = false): Workload {
  return build(`the warm-up of ${name}`, long ? LONG_WARM_UP : WARM_UP);
}

function build(name: string, shape: LoadShape): Workload {
  const random = seededRandom(createHash('sha256').update(name).digest().readUInt32LE(0));
  const plan = planConversations(name, shape, random);
  const talks = plan.map((conversation) => talkOf(name, conversation, random));
  return { talks, digest: digestOf(talks) };
}

function talkOf(name: string, planned: PlannedConversation, random: Random): Talk {
  const { index, startAtMs, system } = planned;
  const history: Message[] = system === null ? [] : [{ role: 'system', content: system }];
  const turns = planned.turns.map(({ text, maxTokens, thinkMs }): Turn => {
    history.push({ role: 'user', content: text });
    const body = bodyOf(history, maxTokens);
    history.push({ role: 'assistant', content: prose(random, maxTokens * BYTES_PER_TOKEN) });
    return { thinkMs, door: random.next(), body };
  });
  const session = createHash('sha256').update(`${name}/${index}`).digest('hex').slice(0, 16);
  return { index, startAtMs, session, shared: system !== null, turns };
}

function bodyOf(messages: readonly Message[], maxTokens: number): Buffer {
  return Buffer.from(
    JSON.stringify({
      model: MODEL,
      messages,
      max_tokens: maxTokens,
      ignore_eos: true,
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
}

function digestOf(talks: readonly Talk[]): string {
  const hash = createHash('sha256');
  for (const { startAtMs, session, turns } of talks) {
    hash.update(`${startAtMs} ${session}`);
    for (const { thinkMs, door, body } of turns) hash.update(`${thinkMs} ${door}`).update(body);
  }
  return hash.digest('hex').slice(0, 16);
}
