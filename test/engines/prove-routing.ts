// What must hold while nothing breaks: replicas come up through their phases, conversations stay where their prefix is,
// and what the router predicts is what the engines report.

import { coresOfGroup, coresOfOthers, processGroup, readCpu } from './cpu.ts';
import type { LoadShape } from './conversations.ts';
import { passesThrough, stepsText } from './phases.ts';
import type { Spread } from './quantile.ts';
import { scoreLoad, type LoadScore, type ScoredTurn } from './scoring.ts';
import { loadBySession, loadThroughFleet, replicaOf, type Run } from './stage.ts';
import { tableLines } from './verdict.ts';
import { delay, waitFor } from './wait.ts';

const READY_LIMIT_MS = 240_000;
const STAY_SHARE = 0.9;
const CACHED_ERROR = 0.1;
const TTFT_ERROR_AIM = 0.15;

const MODERATE: LoadShape = { conversations: 14, perSecond: 0.45, turns: 5 };
/** About twice what both engines' KV caches hold. */
const BEYOND_KV: LoadShape = { conversations: 40, perSecond: 2.4, turns: 5 };
const SMOKE: LoadShape = { conversations: 8, perSecond: 0.5, turns: 4 };

export async function proveReady(run: Run): Promise<void> {
  run.verdict.heading('Two engines load while Spillway waits');
  for (const engine of run.engines) await engine.untilServing(READY_LIMIT_MS);
  await untilAllReady(run);
  for (const engine of run.engines) {
    const steps = run.watch.of(replicaOf(engine));
    run.verdict.check(
      `${engine.place.name} becomes ready through loading and warming`,
      passesThrough(steps, ['loading', 'warming', 'ready']),
      stepsText(steps),
    );
  }
}

/** Waits until every replica is `ready`. */
export async function untilAllReady(run: Run): Promise<void> {
  await waitFor({ what: 'all replicas are ready', limitMs: READY_LIMIT_MS }, () => {
    const ended = run.fleet.ended();
    if (ended !== null) throw new Error(`spillway ended (${ended}), see its log`);
    return run.engines.every((engine) => run.watch.latest(replicaOf(engine))?.phase === 'ready')
      ? true
      : null;
  });
}

export async function proveSmoke(run: Run): Promise<void> {
  run.verdict.heading(`${describe(SMOKE)} through Spillway`);
  const turns = await watched(run, () => loadThroughFleet(run, 'the smoke run', SMOKE));
  const score = scoreLoad(turns);
  printScores(run, [['Spillway', score]]);
  checkServed(run, turns, score);
  checkPredictions(run, score);
}

export async function provePlacement(run: Run): Promise<void> {
  run.verdict.heading(`${describe(MODERATE)}, through Spillway and by session to fixed engines`);
  const turns = await watched(run, () => loadThroughFleet(run, 'the moderate load', MODERATE));
  const score = scoreLoad(turns);
  const bySession = scoreLoad(await loadBySession(run, 'the load by session', MODERATE));
  printScores(run, [
    ['Spillway', score],
    ['by session', bySession],
  ]);
  checkServed(run, turns, score);
  const stayed = score.stayedShare ?? 0;
  const cached = score.cachedShare ?? 0;
  run.verdict.check(
    'later turns go where the prefix is',
    stayed >= STAY_SHARE || cached >= (bySession.cachedShare ?? 1),
    `${percent(stayed)} stayed; cached ${percent(cached)}, by session ${percent(bySession.cachedShare)}`,
  );
  checkPredictions(run, score);
}

export async function proveOverload(run: Run): Promise<void> {
  run.verdict.heading(`${describe(BEYOND_KV)}: more than the engines' KV caches hold`);
  // The load by session went past the router: its traces in the figures fade first.
  await delay(2_000);
  const turns = await watched(run, () =>
    loadThroughFleet(run, 'the load beyond the cache', BEYOND_KV),
  );
  const score = scoreLoad(turns);
  printScores(run, [['Spillway', score]]);
  checkServed(run, turns, score);
}

/** Says who used the processors during a load. */
async function watched(
  run: Run,
  load: () => Promise<readonly ScoredTurn[]>,
): Promise<readonly ScoredTurn[]> {
  const before = readCpu();
  const turns = await load();
  const after = readCpu();
  const ours = [run.fleet.pid, ...run.engines.map((engine) => engine.pid), processGroup()];
  const router = coresOfGroup(before, after, run.fleet.pid);
  const others = Math.max(0, coresOfOthers(before, after, ours));
  const perTurnMs = (router * (after.atMs - before.atMs)) / turns.length;
  run.verdict.note(
    `Spillway used ${router.toFixed(2)} cores (${perTurnMs.toFixed(1)} ms a turn, /status included); ` +
      `other programs ${others.toFixed(2)}${others > 0.1 ? ": times below are not the engines' own" : ''}`,
  );
  return turns;
}

function checkServed(run: Run, turns: readonly ScoredTurn[], score: LoadScore): void {
  run.verdict.check(
    'every turn is answered',
    score.failed.length === 0,
    score.failed[0] ?? `${score.turns} turns`,
  );
  const unlogged = turns.filter((scored) => scored.line === null).length;
  run.verdict.check('every turn has its log line', unlogged === 0, `${unlogged} without`);
  const usageSeen = turns.filter(({ turn }) => turn.streamed && turn.error === null);
  run.verdict.check(
    'a usage chunk comes where it is asked for and nowhere else',
    usageSeen.every(({ turn }) => (turn.usage !== null) === turn.askedUsage),
    `${usageSeen.filter(({ turn }) => turn.askedUsage).length} of ${usageSeen.length} streams asked`,
  );
}

function checkPredictions(run: Run, score: LoadScore): void {
  const { p50, count } = score.cachedError;
  run.verdict.check(
    'predicted cached tokens are within 10 % of the reported (median)',
    p50 !== null && p50 <= CACHED_ERROR,
    `${percent(p50)} over ${count} later turns`,
  );
  const busy = score.ttftErrorBusy.p50;
  run.verdict.note(
    `aim: predicted time to first token within ${percent(TTFT_ERROR_AIM)} while busy (median): ` +
      `${busy !== null && busy <= TTFT_ERROR_AIM ? 'met' : 'missed'}, ${percent(busy)}`,
  );
}

function printScores(run: Run, rows: readonly (readonly [string, LoadScore])[]): void {
  const head = [
    '',
    'turns',
    'failed',
    'TTFT p50 ms',
    'p95 ms',
    'cached',
    'stayed',
    'cached error p50/p90',
    'TTFT error p50/p90',
    'while busy p50/p90',
  ];
  const cells = rows.map(([name, score]) => [
    name,
    String(score.turns),
    String(score.failed.length),
    whole(score.ttftMs.p50),
    whole(score.ttftMs.p95),
    percent(score.cachedShare),
    percent(score.stayedShare),
    percents(score.cachedError),
    percents(score.ttftError),
    percents(score.ttftErrorBusy),
  ]);
  for (const line of tableLines([head, ...cells])) run.verdict.note(line);
}

function describe(shape: LoadShape): string {
  return `${shape.conversations} conversations of ${shape.turns} turns, ${shape.perSecond} new per second`;
}

function whole(value: number | null): string {
  return value === null ? '–' : value.toFixed(0);
}

function percent(value: number | null): string {
  return value === null ? '–' : `${(value * 100).toFixed(1)} %`;
}

function percents(spread: Spread): string {
  return `${percent(spread.p50)} / ${percent(spread.p90)}`;
}
