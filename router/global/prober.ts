// A small generation through the whole path to each region, as a client's would go: signed, streamed, and timed at this end.
//
//   first token   what a client would wait, network and all
//   spacing       a stream whose pieces come together although the region began to answer long before has been held back
//                 on the way: something between the tiers buffers. The region says in its head when its first token came
//                 (`Server-Timing`), so that a fast engine is not mistaken for a buffer
//   busy          429, 503, 529: it lives and has no room
//
// A model that generates nothing (embeddings, say) is not asked again before the others; a region without any that does
// is not probed. What is found goes to the core; the first time that streams are
// held back, and the first time that they are not, is said in the log.

import type { Dispatcher, Pool } from 'undici';
import { errorCode } from '../../shared/lib/error-code.ts';
import type { LeaseId, RegionId, RouterId } from '../../shared/model/ids.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { isBackPressure } from '../gateway/engine-answer.ts';
import { EventScan } from '../gateway/event-scan.ts';
import { anotherServer, isAnotherServer } from '../gateway/own-answer.ts';
import { signContext } from '../gateway/tier-context.ts';
import { CONTEXT_HEADER } from '../gateway/tier-door.ts';
import type { RegionConnections } from './connections.ts';
import type { GlobalEvent, RegionProbe } from './events.ts';
import type { MetricName } from './metrics.ts';
import type { ProbeOptions, RegionOptions } from './options.ts';
import { isHeldBack, regionTtftMs } from './probe-spacing.ts';

export interface ProberDeps {
  readonly runtime: RoleRuntime;
  readonly routerId: RouterId;
  readonly metrics: Metrics<MetricName>;
  /** Of the generation that runs; null: no region is probed. */
  readonly options: () => ProbeOptions | null;
  readonly connections: RegionConnections;
  readonly regions: () => readonly RegionOptions[];
  /** Of ready replicas: what loads is not asked. */
  readonly modelsOf: (region: RegionId) => readonly string[];
  readonly post: (event: GlobalEvent) => void;
}

const LOOK_MS = 250;
const TOKENS = 24;
const MAX_EVENT_BYTES = 64 * 1024;
const MAX_ANSWER_BYTES = 256 * 1024;
/** Of whom it is, in logs of the region. */
const TENANT = 'spillway-probe';
const PROMPT = 'Count from 1 to 40, separated by spaces.';
const LIMITS = { max_tokens: TOKENS, temperature: 0, stream: true } as const;

/** Path and body but for the model, in the order of asking. */
const WAYS: readonly (readonly [string, object])[] = [
  ['/v1/chat/completions', { messages: [{ role: 'user', content: PROMPT }], ...LIMITS }],
  ['/v1/completions', { prompt: PROMPT, ...LIMITS }],
];
const NOT_OFFERED: readonly number[] = [400, 404, 405, 501];

interface Probed {
  /** When the last one began. */
  beganMs: number;
  /** Of the interval, until the next: routers that were started together do not stay together. */
  spread: number;
  running: boolean;
  /** Which of its models, in their order. */
  model: number;
  /** Of the last good one. */
  ttftMs: number | null;
  heldBack: boolean | null;
}

/** One, by the options of when it began. */
interface Probe {
  readonly model: string;
  readonly options: ProbeOptions;
}

const UNPROBED: Readonly<Probed> = {
  beganMs: Number.NEGATIVE_INFINITY,
  spread: 1,
  running: false,
  model: 0,
  ttftMs: null,
  heldBack: null,
};

/** What came of one: null where nothing of the kind is offered. */
type Outcome = RegionProbe | null;

interface Asking {
  readonly path: string;
  readonly body: object;
  readonly signal: AbortSignal;
  readonly options: ProbeOptions;
}

export class RegionProber {
  private readonly deps: ProberDeps;
  private readonly probed = new Map<RegionId, Probed>();
  private readonly stop: () => void;
  private readonly ended = new AbortController();
  private sent = 0;

  constructor(deps: ProberDeps) {
    this.deps = deps;
    const { timers } = deps.runtime;
    this.stop = timers.every(LOOK_MS, () => this.look());
  }

  close(): void {
    this.stop();
    this.ended.abort();
  }

  private look(): void {
    const { runtime } = this.deps;
    const options = this.deps.options();
    const nowMs = runtime.clock.nowMs();
    const regions = this.deps.regions();
    this.forget(regions);
    if (options === null) return;
    for (const region of regions) {
      const state = this.probed.get(region.id) ?? { ...UNPROBED };
      this.probed.set(region.id, state);
      const isDue = nowMs >= state.beganMs + options.intervalMs * state.spread;
      if (state.running || !isDue || region.rollout === 'off') continue;
      const models = this.deps.modelsOf(region.id);
      const model = models[state.model % Math.max(1, models.length)];
      if (model === undefined) continue;
      state.beganMs = nowMs;
      state.spread = 0.9 + 0.2 * runtime.random.next();
      state.running = true;
      void this.probe(region, { model, options }).then((outcome) => {
        state.running = false;
        if (outcome === null) state.model += 1;
        else this.tell(region.id, state, outcome);
      });
    }
  }

  /** Regions that are configured no more leave the exposition, too. */
  private forget(regions: readonly RegionOptions[]): void {
    let gone = false;
    for (const id of this.probed.keys()) {
      if (!regions.some((region) => region.id === id)) gone = this.probed.delete(id);
    }
    if (gone) this.show();
  }

  private show(): void {
    const rows = (read: (state: Probed) => number | null) =>
      [...this.probed].map(([region, state]) => ({ labels: { region }, value: read(state) }));
    const { metrics } = this.deps;
    metrics.replace(
      'region_probe_ttft_seconds',
      rows(({ ttftMs }) => (ttftMs === null ? null : ttftMs / 1_000)),
    );
    metrics.replace(
      'region_probe_buffered',
      rows(({ heldBack }) => (heldBack === null ? null : Number(heldBack))),
    );
  }

  private tell(region: RegionId, state: Probed, result: RegionProbe): void {
    if (this.ended.signal.aborted) return;
    const { metrics, runtime, post } = this.deps;
    metrics.add('region_probes_total', { region, result: result.kind });
    if (result.kind === 'good') {
      const { ttftMs, buffered } = result;
      const before = state.heldBack ?? false;
      if (buffered !== null && buffered !== before) {
        if (buffered) runtime.log.warn({ region, ttftMs }, 'streams_held_back');
        else runtime.log.info({ region }, 'streams_pass');
      }
      state.heldBack = buffered ?? state.heldBack;
      state.ttftMs = ttftMs;
      this.show();
    }
    post({ kind: 'probed', region, result });
  }

  /** Never rejects. */
  private async probe(region: RegionOptions, { model, options }: Probe): Promise<Outcome> {
    const signal = AbortSignal.any([AbortSignal.timeout(options.timeoutMs), this.ended.signal]);
    try {
      for (const [path, body] of WAYS) {
        const outcome = await this.ask(region, { path, body: { model, ...body }, signal, options });
        if (outcome !== null) return outcome;
      }
      return null;
    } catch (error) {
      const name = error instanceof Error ? error.name : 'unknown';
      return { kind: 'failed', detail: errorCode(error) ?? name };
    }
  }

  private ask(region: RegionOptions, what: Asking): Promise<Outcome> {
    return this.deps.connections.with(region.id, (pool) => this.askBy(pool, region, what));
  }

  private async askBy(pool: Pool, region: RegionOptions, what: Asking): Promise<Outcome> {
    const { clock } = this.deps.runtime;
    const body = Buffer.from(JSON.stringify(what.body));
    const sentMs = clock.nowMs();
    const answer = await pool.request({
      path: what.path,
      method: 'POST',
      headers: this.headers(region, { ...what, body }),
      body,
      signal: what.signal,
    });
    const { statusCode } = answer;
    if (statusCode !== 200) {
      await answer.body.dump({ limit: MAX_ANSWER_BYTES });
      if (isBackPressure(statusCode)) return { kind: 'busy' };
      if (isAnotherServer(statusCode, answer.headers)) {
        return { kind: 'failed', detail: anotherServer(statusCode) };
      }
      if (NOT_OFFERED.includes(statusCode)) return null;
      return { kind: 'failed', detail: `status ${statusCode}` };
    }
    return this.read(answer, { sentMs, gapMs: what.options.gapMs });
  }

  private headers(
    region: RegionOptions,
    {
      path,
      body,
      options,
    }: { readonly path: string; readonly body: Buffer; readonly options: ProbeOptions },
  ): Record<string, string> {
    const { routerId, runtime } = this.deps;
    this.sent += 1;
    const attempt = `probe-${routerId}-${this.sent}` as LeaseId;
    const context = {
      ...{ attempt, from: routerId, seq: 0, tenant: TENANT, saltGroup: TENANT, residency: null },
      ...{ conversation: null, away: false, awayForMs: 0, zones: null },
      deadlineInMs: options.timeoutMs,
    };
    const to = { region: region.id, key: region.tierKey, bound: { method: 'POST', path, body } };
    return {
      'content-type': 'application/json',
      'x-request-id': attempt,
      [CONTEXT_HEADER]: signContext(context, to, runtime.clock.wallMs()),
    };
  }

  private async read(
    { headers, body }: Dispatcher.ResponseData,
    { sentMs, gapMs }: { readonly sentMs: number; readonly gapMs: number },
  ): Promise<Outcome> {
    const { clock } = this.deps.runtime;
    const scan = new EventScan(false, MAX_EVENT_BYTES);
    const arrivals: number[] = [];
    let bytes = 0;
    for await (const piece of body as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > MAX_ANSWER_BYTES) return { kind: 'failed', detail: 'too long an answer' };
      const { dataEvents, fault } = scan.push(piece);
      if (fault !== null) return faultOf(fault);
      const nowMs = clock.nowMs();
      for (let k = 0; k < dataEvents; k += 1) arrivals.push(nowMs);
    }
    const [first] = arrivals;
    if (first === undefined || !scan.done) return { kind: 'failed', detail: 'a cut stream' };
    const ttftMs = first - sentMs;
    const buffered = isHeldBack(arrivals, {
      gapMs,
      lateMs: ttftMs - regionTtftMs(headers['server-timing']),
    });
    return { kind: 'good', ttftMs, buffered };
  }
}

/** An error as an event, behind comments that had sent the status before. */
function faultOf(fault: NonNullable<ReturnType<EventScan['push']>['fault']>): RegionProbe {
  if (fault.kind === 'error_event' && isBackPressure(fault.status)) return { kind: 'busy' };
  return { kind: 'failed', detail: 'an error in the stream' };
}
