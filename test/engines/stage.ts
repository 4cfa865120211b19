// What a run stands on: two engines, Spillway before them, and a watch on the phases.

import { join } from 'node:path';
import {
  holdConversations,
  clientFor,
  type LoadShape,
  planConversations,
  type TurnRecord,
} from './conversations.ts';
import { seededRandom } from '../../shared/lib/random.ts';
import { Fleet, type RequestLine } from './fleet.ts';
import { PhaseWatch } from './phases.ts';
import type { ScoredTurn } from './scoring.ts';
import type { Verdict } from './verdict.ts';
import { Engine, placeEngine } from './vllm.ts';
import { waitFor } from './wait.ts';
import { freePort } from '../free-ports.ts';

export interface Run {
  readonly verdict: Verdict;
  readonly engines: readonly Engine[];
  readonly fleet: Fleet;
  readonly watch: PhaseWatch;
}

export interface RunPlace {
  readonly install: string;
  /** For logs and pid files. */
  readonly folder: string;
  readonly verdict: Verdict;
}

/** Starts everything; the engines will load for a minute yet. */
export async function beginRun({ install, folder, verdict }: RunPlace): Promise<Run> {
  const engines: Engine[] = [];
  for (const [core, name] of ['engine-a', 'engine-b'].entries()) {
    engines.push(new Engine(await placeEngine(name, core, folder), install));
  }
  for (const engine of engines) engine.start();
  const fleet = new Fleet({
    port: await freePort(),
    engineUrls: engines.map((engine) => engine.place.url),
    logPath: join(folder, 'spillway.log'),
  });
  await fleet.untilListening(20_000);
  return { verdict, engines, fleet, watch: new PhaseWatch(fleet, join(folder, 'status.jsonl')) };
}

export async function endRun(run: Run): Promise<void> {
  run.watch.stop();
  await run.fleet.stop();
  await Promise.all(run.engines.map((engine) => engine.stop()));
}

/** The name by which Spillway knows an engine. */
export function replicaOf(engine: Engine): string {
  return new URL(engine.place.url).host;
}

export function engineOf(run: Run, replica: string): Engine {
  const engine = run.engines.find((candidate) => replicaOf(candidate) === replica);
  if (engine === undefined) throw new Error(`no engine is called ${replica}`);
  return engine;
}

/** One load through Spillway, joined with what the router logged about it. */
export async function loadThroughFleet(
  run: Run,
  name: string,
  shape: LoadShape,
): Promise<ScoredTurn[]> {
  const client = clientFor(run.fleet.url);
  const plan = planConversations(name, shape, seededRandom(shape.conversations));
  const turns = await holdConversations(plan, () => client);
  const lines = await untilLogged(run, turns.map(requestIdOf));
  return turns.map((turn) => {
    const line = lines.get(requestIdOf(turn)) ?? null;
    return { turn, line, replica: turn.headers['x-spillway-replica'] ?? line?.replica ?? null };
  });
}

export function requestIdOf(turn: Pick<TurnRecord, 'headers'>): string {
  return turn.headers['x-spillway-request-id'] ?? '';
}

/** The log is written behind the answers: waits a little for the last lines. */
export async function untilLogged(
  run: Run,
  ids: readonly string[],
): Promise<ReadonlyMap<string, RequestLine>> {
  const look = (): Map<string, RequestLine> | null => {
    const lines = run.fleet.requestLines();
    return ids.every((id) => id === '' || lines.has(id)) ? lines : null;
  };
  return waitFor({ what: 'every request is logged', limitMs: 5_000 }, look).catch(() =>
    run.fleet.requestLines(),
  );
}

/** The same load straight to the engines, each conversation always to the same one. */
export async function loadBySession(
  run: Run,
  name: string,
  shape: LoadShape,
): Promise<ScoredTurn[]> {
  const urls = run.engines.map((engine) => engine.place.url);
  const clients = urls.map((url) => clientFor(url));
  const plan = planConversations(name, shape, seededRandom(shape.conversations)).map((talk) => ({
    ...talk,
    turns: talk.turns.map((turn) => ({ ...turn, asksUsage: true })),
  }));
  // Pairs of neighbours share a shared prompt or not; a hash of a session id spreads both kinds alike.
  const placeOf = (conversation: number): number => (conversation >> 1) % urls.length;
  const turns = await holdConversations(plan, (conversation) => {
    const client = clients[placeOf(conversation)];
    if (client === undefined) throw new Error('no engine');
    return client;
  });
  return turns.map((turn) => ({
    turn,
    line: null,
    replica: urls[placeOf(turn.conversation)] ?? null,
  }));
}
