// Holds the conversations of a workload through an arm's doors. A turn is due when its conversation begins, or when the
// person has thought about the last answer; how late it was sent says whether this program itself had the processor.

import { Agent } from 'node:http';
import { delay } from '../../test/engines/wait.ts';
import { ask, type Answer } from './ask.ts';
import type { Talk, Turn, Workload } from './workload.ts';

export interface TurnResult extends Answer {
  readonly conversation: number;
  readonly turn: number;
  /** Begins with the shared system prompt. */
  readonly shared: boolean;
  /** ms after it was due. */
  readonly lateMs: number;
}

export interface LoadResult {
  readonly turns: readonly TurnResult[];
  /** ms from the start of the load to the end of its last answer. */
  readonly runMs: number;
}

export async function hold(workload: Workload, doors: readonly string[]): Promise<LoadResult> {
  const startMs = performance.now();
  const urls = doors.map((door) => new URL('/v1/chat/completions', door));
  const turns = await Promise.all(workload.talks.map((talk) => holdOne(talk, urls, startMs)));
  return { turns: turns.flat(), runMs: performance.now() - startMs };
}

async function holdOne(talk: Talk, urls: readonly URL[], startMs: number): Promise<TurnResult[]> {
  // A client of its own: connections are not shared with other conversations.
  const agent = new Agent({ keepAlive: true });
  const results: TurnResult[] = [];
  let dueMs = startMs + talk.startAtMs;
  for (const [turn, planned] of talk.turns.entries()) {
    dueMs += planned.thinkMs;
    await delay(Math.max(0, dueMs - performance.now()));
    const lateMs = performance.now() - dueMs;
    const { session, index: conversation, shared } = talk;
    const answer = await ask({ url: doorOf(planned, urls), agent, session, body: planned.body });
    dueMs = performance.now();
    results.push({ conversation, turn, shared, lateMs, ...answer });
  }
  agent.destroy();
  return results;
}

export function doorOf({ door }: Pick<Turn, 'door'>, urls: readonly URL[]): URL {
  const url = urls[Math.floor(door * urls.length)];
  if (url === undefined) throw new Error('an arm without a door');
  return url;
}
