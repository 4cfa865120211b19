// What must hold when clients leave and engines die, and after all of it.

import { clientFor, askModel } from './conversations.ts';
import { killInPrefill, killInStream, leaveInStream, streamPrompt } from './faults.ts';
import { passesThrough, stepsText } from './phases.ts';
import { untilAllReady } from './prove-routing.ts';
import { engineOf, replicaOf, requestIdOf, untilLogged, type Run } from './stage.ts';
import { MODEL, sumOfSeries, type Engine } from './vllm.ts';
import { waitFor } from './wait.ts';

/** After its core the server ends by itself within seconds. */
const END_LIMIT_MS = 20_000;
const SERVING_LIMIT_MS = 180_000;

export async function proveLeaving(run: Run): Promise<void> {
  run.verdict.heading('A client that leaves in mid-stream');
  const tookMs = await leaveInStream(run.fleet.url, run.engines);
  run.verdict.check('its engine stops at once', tookMs < 2_000, `${tookMs.toFixed(0)} ms`);
}

export async function proveDeaths(run: Run): Promise<void> {
  run.verdict.heading('An engine core killed in mid-prefill of a streamed request');
  await proveFailover(run, true);
  run.verdict.heading('An engine core killed in mid-prefill of a request that is not streamed');
  await proveFailover(run, false);
  run.verdict.heading('An engine core killed in mid-stream');
  await proveCut(run);
}

async function proveFailover(run: Run, streamed: boolean): Promise<void> {
  const { verdict } = run;
  let life: Life | null = null;
  const { victim, answer } = await killInPrefill(run.fleet.url, run.engines, {
    streamed,
    onKill: (engine) => (life = lifeOf(run, engine)),
  });
  // From the log: an answer after a long silence has its headers before its replica is known.
  const id = requestIdOf(answer);
  const line = (await untilLogged(run, [id])).get(id);
  const whole = answer.error === null && answer.finished && answer.text !== '';
  verdict.check(
    'the client sees one whole answer, from the other engine',
    whole && line?.replica !== undefined && line.replica !== replicaOf(victim),
    answer.error ?? `killed ${replicaOf(victim)}, answered by ${line?.replica}`,
  );
  verdict.check(
    'after a second attempt',
    line?.attempts === 2,
    `${line?.attempts} attempts, ${(answer.totalMs / 1_000).toFixed(1)} s in all`,
  );
  await proveReturn(run, victim, life ?? lifeOf(run, victim));
}

async function proveCut(run: Run): Promise<void> {
  const { verdict } = run;
  // The prompt is known to be held somewhere, so that its absence later means something.
  const first = await askModel(clientFor(run.fleet.url), streamPrompt(), {
    maxTokens: 4,
    streamed: false,
    asksUsage: false,
  });
  const held = first.headers['x-spillway-replica'] ?? '';
  const heldTokens = await expectedCached(run, held);
  verdict.check(
    'the index has what was just served',
    (heldTokens ?? 0) > 0,
    `${heldTokens} tokens`,
  );

  let life: Life | null = null;
  const seen = await killInStream(run.fleet.url, (replica) => {
    life = lifeOf(run, engineOf(run, replica));
    return engineOf(run, replica);
  });
  const victim = engineOf(run, seen.replica);
  verdict.check('the client gets an error', seen.error !== null, seen.error ?? 'a clean end');
  verdict.check('and no finish reason', seen.finishReason === null, `after ${seen.pieces} pieces`);
  verdict.note(`last bytes: ${JSON.stringify(seen.tail.slice(-240))}`);
  await proveReturn(run, victim, life ?? lifeOf(run, victim));
  const tokens = await expectedCached(run, seen.replica);
  verdict.check('with an empty index', tokens === 0, `${tokens} of the prompt expected there`);
}

/** Cached tokens that the router expects of the stream's prompt on a replica. */
async function expectedCached(run: Run, replica: string): Promise<number | null> {
  const decision = await run.fleet.explain({ model: MODEL, messages: streamPrompt() });
  const candidate = decision?.candidates.find(({ target }) => target.replica === replica);
  return candidate?.cachedTokens ?? null;
}

/** What is known of an engine before it comes back. */
interface Life {
  readonly sinceMs: number;
  readonly incarnation: string | null;
}

function lifeOf(run: Run, engine: Engine): Life {
  const incarnation = run.watch.latest(replicaOf(engine))?.incarnation ?? null;
  return { sinceMs: run.watch.nowMs(), incarnation };
}

/** The engine's supervisor starts it again: it comes back through loading, as a new incarnation. */
async function proveReturn(run: Run, engine: Engine, life: Life): Promise<void> {
  const replica = replicaOf(engine);
  await engine.untilGone(END_LIMIT_MS);
  await waitFor({ what: `${replica} is no longer ready`, limitMs: END_LIMIT_MS }, () =>
    run.watch.latest(replica)?.phase === 'ready' ? null : true,
  );
  engine.start();
  await engine.untilServing(SERVING_LIMIT_MS);
  await untilAllReady(run);
  const steps = run.watch.of(replica, life.sinceMs);
  run.verdict.check(
    'the restarted engine comes back through loading',
    passesThrough(steps, ['loading', 'warming', 'ready']),
    stepsText(steps),
  );
  const now = run.watch.latest(replica)?.incarnation ?? null;
  run.verdict.check(
    'as a new incarnation',
    now !== null && now !== life.incarnation,
    `${life.incarnation} → ${now}`,
  );
}

/** Nothing of all that is still held. */
export async function proveNothingLeft(run: Run): Promise<void> {
  run.verdict.heading('At the end');
  const view = await waitFor({ what: 'the last lease is released', limitMs: 5_000 }, async () => {
    const seen = await run.fleet.view();
    return seen !== null && seen.leases === 0 && seen.openRequests === 0 ? seen : null;
  }).catch(() => run.fleet.view());
  run.verdict.check('no lease is left', view?.leases === 0, `${view?.leases}`);
  run.verdict.check('no request is open', view?.openRequests === 0, `${view?.openRequests}`);
  const leases = sumOfSeries(await run.fleet.metrics(), 'spillway_leases');
  run.verdict.check('the metric says the same', leases === 0, `spillway_leases ${leases}`);
}
