// Whether a router of several workers is ready: as soon as one of them is, since connections go to those that are.
// The others are named. A worker that has said nothing for `SILENT_MS` is not counted: it hangs.

import type { Readiness } from '../../gateway/readiness.ts';
import type { WorkerStatus } from '../status.ts';

/** ms without a word after which a worker is taken to hang: three times as long as it takes between two. */
export const SILENT_MS = 3_000;

export interface WorkerSays {
  readonly number: number;
  readonly state: WorkerStatus['state'];
  /** What it said last; null: nothing yet. */
  readonly readiness: Readiness | null;
  readonly saidAgoMs: number | null;
}

export function workersReadiness(workers: readonly WorkerSays[], leaving: boolean): Readiness {
  const ready = workers.filter((worker) => isReady(worker));
  const best = bestOf(workers);
  return {
    ready: !leaving && ready.length > 0,
    checks: [
      { name: 'configuration', ok: true, says: 'loaded' },
      { name: 'accepting', ok: !leaving, says: leaving ? 'draining' : 'yes' },
      { name: 'replicas', ok: best?.ok ?? false, says: best?.says ?? 'no worker to ask' },
      ...workers.map((worker) => ({
        name: `worker ${worker.number}`,
        ok: isReady(worker),
        says: words(worker),
      })),
    ],
  };
}

/** It takes requests, and has somebody to send them to. */
export function isReady({ state, readiness, saidAgoMs }: WorkerSays): boolean {
  return state === 'up' && readiness?.ready === true && (saidAgoMs ?? Infinity) < SILENT_MS;
}

/** What the worker that knows the most ready replicas says of them. */
function bestOf(workers: readonly WorkerSays[]): Readiness['checks'][number] | null {
  let best: Readiness['checks'][number] | null = null;
  for (const { state, readiness } of workers) {
    const check = state === 'up' ? readiness?.checks.find(({ name }) => name === 'replicas') : null;
    if (check !== undefined && check !== null && (best === null || more(check, best))) best = check;
  }
  return best;
}

function more(a: { readonly says: string }, b: { readonly says: string }): boolean {
  return Number.parseInt(a.says, 10) > Number.parseInt(b.says, 10);
}

function words({ state, readiness, saidAgoMs }: WorkerSays): string {
  if (state === 'down') return 'died: starting again';
  if (state === 'leaving') return 'draining';
  if (state === 'starting' || readiness === null || saidAgoMs === null) return 'starting';
  if (saidAgoMs >= SILENT_MS) return `silent for ${Math.round(saidAgoMs / 1_000)} s`;
  if (readiness.ready) return 'ready';
  const missing = readiness.checks.filter(({ ok }) => !ok);
  return `not ready (${missing.map(({ name, says }) => `${name}: ${says}`).join(', ')})`;
}
