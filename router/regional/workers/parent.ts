// The parent of a router's workers: it answers operators for all of them. It routes nothing and knows no replica; what it
// says is what the workers say, put together.
//
//   counters   are its own instruments, in which it counts what the workers send: they outlive every worker
//   status     is asked of each worker when somebody looks; one that does not answer in time stands with what it said
//              last, and is named
//   readiness  goes by what the workers say by themselves every second
//   contexts   that global routers sign are good once: it knows what each worker has let in

import { FleetError } from '../../../shared/errors.ts';
import { randomHex } from '../../../shared/runtime/entropy.ts';
import { createMetrics } from '../../../shared/runtime/metrics.ts';
import { MetricsJournal, countJournal } from '../../../shared/runtime/metrics-journal.ts';
import type { JournalEntry } from '../../../shared/runtime/metrics-journal.ts';
import type { RoleRuntime } from '../../../shared/runtime/role.ts';
import { SOFTWARE, VERSION } from '../../../shared/runtime/version.ts';
import { BodyBudget } from '../../gateway/body-budget.ts';
import { adminRoutes } from '../../gateway/admin-routes.ts';
import { openDoor } from '../../gateway/client-door.ts';
import { drainRoutes, type DrainState } from '../../gateway/drain-routes.ts';
import type { Explainable } from '../../gateway/explanation.ts';
import { SeenAttempts, type SeenRefusal } from '../../gateway/seen-attempts.ts';
import { METRICS, METRICS_PREFIX, type MetricName } from '../metrics.ts';
import type { Listen } from '../../gateway/gateway-options.ts';
import type { RouterOptions, RouterReloadable } from '../options.ts';
import type { DrainOptions } from '../../gateway/leaving.ts';
import { Listeners } from '../../gateway/listeners.ts';
import { Unserved } from '../../gateway/unserved.ts';
import type { Beat } from '../start.ts';
import type { Readiness } from '../../gateway/readiness.ts';
import { NOWHERE } from '../engine-words.ts';
import { setGauges } from '../gauges.ts';
import { statusText, type RouterStatus } from '../status.ts';
import { RegionalTls } from '../tls.ts';
import { NoAnswerError, type Crew, type Member } from './crew.ts';
import { GaugeRows } from './gauge-rows.ts';
import type { Order } from './messages.ts';
import { workersReadiness, type WorkerSays } from './readiness.ts';
import { workerShare } from './shares.ts';
import { GoneTotals, mergeStatuses } from './status-merge.ts';
import { setWorkerGauges, workerStatuses } from './worker-status.ts';

/** ms in which a worker answers a scrape, or is passed over. */
const STATUS_MS = 1_000;
const EXPLAIN_MS = 5_000;
const RELOAD_MS = 10_000;
const CLOSE_MS = 5_000;
/** ms above what draining may take, for the answer. */
const DRAIN_MARGIN_MS = 2_000;

export interface ParentDeps {
  readonly options: RouterOptions;
  readonly runtime: RoleRuntime;
  readonly crew: Crew;
}

interface Heard {
  readonly beat: Beat;
  readonly atMs: number;
}

export class WorkersParent {
  adminPort: number | null = null;
  private readonly deps: ParentDeps;
  private readonly metrics = createMetrics<MetricName>(METRICS_PREFIX, METRICS);
  private readonly gaugeRows = new GaugeRows(METRICS);
  private readonly gone = new GoneTotals();
  /** A context that one worker has let in is used up for all. */
  private readonly seen = new SeenAttempts();
  private readonly budget: BodyBudget;
  private readonly listeners: Listeners<'admin'>;
  private readonly tls: RegionalTls;
  private readonly beats = new Map<number, Heard>();
  private readonly last = new Map<number, RouterStatus>();
  private silent: ReadonlySet<number> = new Set();
  private readonly id = randomHex(8);
  private readonly startedMs: number;
  private current: RouterReloadable;
  private reloading: Promise<void> = Promise.resolve();
  private gathering: Promise<RouterStatus> | null = null;
  private nextExplained = 0;
  private markedMs: number | null = null;
  private ending = false;

  constructor(deps: ParentDeps) {
    this.deps = deps;
    const { options, runtime } = deps;
    this.current = options.reloadable;
    const { metrics } = this;
    const { limits } = options.reloadable;
    this.budget = new BodyBudget(limits);
    const unserved = new Unserved({ runtime, metrics, nowhere: NOWHERE });
    const leaving = () => this.ending;
    this.listeners = new Listeners(
      { runtime, metrics, unserved, cors: () => null, leaving },
      limits,
    );
    this.startedMs = runtime.clock.nowMs();
    const own = new MetricsJournal<MetricName>(
      (entries) => Promise.resolve(this.journal(0, entries)),
      runtime.timers,
    );
    this.tls = new RegionalTls(adminAlone(options), runtime, own);
    this.metrics.set('build_info', 1, { version: VERSION, region: options.region });
  }

  /** What workers are to run with, those that start later included. */
  get reloadable(): RouterReloadable {
    return this.current;
  }

  /** It is out of its balancer, or ends. */
  get leaving(): boolean {
    return this.ending || this.markedMs !== null;
  }

  // ── from the workers ─────────────────────────────────────────────────────────────────────────────────

  journal(worker: number, entries: readonly JournalEntry<MetricName>[]): void {
    countJournal(this.metrics, entries, (name, rows) => this.gaugeRows.take(worker, name, rows));
  }

  beat(worker: number, beat: Beat): void {
    this.beats.set(worker, { beat, atMs: this.deps.runtime.clock.nowMs() });
  }

  /** Its process is gone. `died`: nobody had told it to end. */
  ended(worker: number, died: boolean): void {
    this.beats.delete(worker);
    this.gaugeRows.forget(worker);
    const last = this.last.get(worker);
    this.last.delete(worker);
    if (last !== undefined) this.gone.add(last, this.deps.runtime.clock.nowMs());
    if (died) this.metrics.add('worker_deaths_total', { worker: String(worker) });
  }

  /** A worker would let an attempt of a global router's in; null: it is the first that would. */
  claim(attempt: string): SeenRefusal | null {
    return this.seen.use(attempt, this.deps.runtime.clock.wallMs());
  }

  /** A connection that no worker could take. */
  dropped(): void {
    this.metrics.add('limit_hits_total', { limit: 'connections' });
  }

  // ── for the process ──────────────────────────────────────────────────────────────────────────────────

  async listen(admin: Listen): Promise<void> {
    const { runtime } = this.deps;
    const tls = this.tls.listener('admin');
    this.adminPort = await this.listeners.add('admin', {
      listen: admin,
      tls,
      handshakeFailed: this.tls.failedAt('admin'),
      door: openDoor({
        clientAuth: tls?.clientAuth ?? 'none',
        tenants: null,
        wallMs: () => runtime.clock.wallMs(),
        onRefused: (credential) => this.metrics.add('client_refusals_total', { credential }),
      }),
      routes: [...this.adminRoutes(), ...this.drainRoutes()],
      pageless: true,
    });
  }

  /** A new generation for every worker, or for none: where one refuses, those that took it get the old one back. */
  reload(next: RouterReloadable): Promise<void> {
    const before = this.reloading;
    const turn = (async () => {
      await before;
      await this.swap(next);
    })();
    this.reloading = turn.catch(() => undefined);
    return turn;
  }

  async status(): Promise<RouterStatus> {
    this.gathering ??= this.gather().finally(() => (this.gathering = null));
    return this.gathering;
  }

  async drain({ acceptMs, drainMs }: DrainOptions): Promise<void> {
    this.ending = true;
    this.markedMs ??= this.deps.runtime.clock.nowMs();
    const timeoutMs = acceptMs + drainMs + DRAIN_MARGIN_MS;
    await this.all({ kind: 'drain', acceptMs, drainMs }, timeoutMs);
  }

  async close(): Promise<void> {
    this.ending = true;
    await this.all({ kind: 'close' }, CLOSE_MS);
    await this.listeners.close();
    this.tls.close();
  }

  // ── privates ─────────────────────────────────────────────────────────────────────────────────────────

  private adminRoutes() {
    const { metrics, budget } = this;
    return adminRoutes<RouterStatus>({
      exposition: async () => {
        const status = await this.status();
        for (const [name, rows] of this.gaugeRows.merged()) metrics.replace(name, rows);
        setWorkerGauges(metrics, status.workers ?? []);
        setGauges(metrics, status);
        return { text: await metrics.text(), contentType: metrics.contentType };
      },
      budget,
      bounds: () => this.current.limits,
      status: () => this.status(),
      statusText,
      readiness: () => this.readiness(),
      explain: (asked) => this.explain(asked),
    });
  }

  private drainRoutes() {
    return drainRoutes({
      state: () => this.drainState(),
      set: (on) => this.mark(on),
      secrets: () => this.current.linkSecrets,
    });
  }

  private readiness(): Readiness {
    return workersReadiness(this.says(), this.leaving);
  }

  private says(): WorkerSays[] {
    const nowMs = this.deps.runtime.clock.nowMs();
    return this.deps.crew.members().map(({ number, state }) => {
      const heard = this.beats.get(number);
      const readiness = heard?.beat.readiness ?? null;
      const saidAgoMs = heard === undefined ? null : nowMs - heard.atMs;
      return { number, state, readiness, saidAgoMs };
    });
  }

  private async gather(): Promise<RouterStatus> {
    const { crew, options, runtime } = this.deps;
    const silent = new Set<number>();
    const asked = this.members('up', 'leaving');
    await Promise.all(
      asked.map(async ({ number, pid }) => {
        try {
          const status = await crew.order<'status'>(number, { kind: 'status' }, STATUS_MS);
          if (this.pidOf(number) === pid) this.last.set(number, status);
        } catch {
          if (this.pidOf(number) === pid) silent.add(number);
        }
      }),
    );
    this.silent = silent;
    const facts = mergeStatuses([...this.last.values()], this.gone, runtime.clock.nowMs());
    return {
      router: {
        id: this.id,
        region: options.region,
        software: SOFTWARE,
        upForS: Math.round((runtime.clock.nowMs() - this.startedMs) / 1_000),
      },
      ready: this.readiness().ready,
      config: runtime.configView?.() ?? null,
      ...facts,
      connections: { ...facts.connections, ...this.listeners.connections() },
      workers: workerStatuses({
        members: crew.members(),
        says: this.says(),
        last: this.last,
        silent: this.silent,
        share: workerShare(this.current, crew.members().length),
      }),
    };
  }

  /** Asks one worker, the next one each time, and names it. */
  private async explain(asked: Explainable): Promise<object> {
    const up = this.members('up');
    const member = up[this.nextExplained % Math.max(1, up.length)];
    this.nextExplained += 1;
    if (member === undefined) throw new FleetError('no_replica', 'No worker of the router is up.');
    const order = { kind: 'explain', asked } as const;
    const said = await this.deps.crew.order<'explain'>(member.number, order, EXPLAIN_MS);
    return { worker: member.number, ...said };
  }

  private mark(on: boolean): boolean {
    if (this.ending && !on) return false;
    if (on === (this.markedMs !== null)) return true;
    this.markedMs = on ? this.deps.runtime.clock.nowMs() : null;
    this.deps.runtime.log.info({}, on ? 'drain_begun' : 'drain_undone');
    void this.all({ kind: 'mark', on }, STATUS_MS);
    return true;
  }

  /** By what the workers have said since it was taken out. */
  private drainState(): DrainState {
    const draining = this.leaving;
    const sinceMs = this.markedMs ?? Infinity;
    const heard = this.members('up', 'leaving').map(({ number }) => this.beats.get(number));
    const open = heard.reduce((sum, each) => sum + (each?.beat.openRequests ?? 0), 0);
    const drained = heard.every((each) => each !== undefined && each.atMs > sinceMs && open === 0);
    return { draining, drained: draining && drained, open };
  }

  private async swap(next: RouterReloadable): Promise<void> {
    const before = this.current;
    this.tls.look();
    const order = (reloadable: RouterReloadable) =>
      ({
        kind: 'reload',
        reloadable: workerShare(reloadable, this.deps.crew.members().length),
      }) as const;
    // Who is starting began with the one before; whoever begins from now on begins with this one.
    this.current = next;
    const outcomes = await this.all(order(next), RELOAD_MS);
    const failure = outcomes.find(
      (outcome) => outcome !== null && !(outcome instanceof NoAnswerError),
    );
    if (failure === undefined || failure === null) {
      this.budget.configure(next.limits);
      this.listeners.configure(next.limits);
      return;
    }
    this.current = before;
    await this.all(order(before), RELOAD_MS);
    throw failure;
  }

  /** The error that it met; null where it did as it was told. */
  private async tried(number: number, order: Order, timeoutMs: number): Promise<Error | null> {
    try {
      await this.deps.crew.order(number, order, timeoutMs);
      return null;
    } catch (error) {
      return error instanceof Error ? error : new Error(String(error));
    }
  }

  /** Tells all that have a process; what each of them met. */
  private all(order: Order, timeoutMs: number): Promise<(Error | null)[]> {
    const members = this.members('up', 'leaving', 'starting');
    return Promise.all(members.map(({ number }) => this.tried(number, order, timeoutMs)));
  }

  private members(...states: readonly Member['state'][]): Member[] {
    return this.deps.crew.members().filter(({ state }) => states.includes(state));
  }

  private pidOf(number: number): number | null {
    return this.deps.crew.members().find((member) => member.number === number)?.pid ?? null;
  }
}

/** Only the certificate of the listener that the parent has: the workers open their own. */
function adminAlone(options: RouterOptions): RouterOptions {
  const { clients, links, reloadable } = options;
  return {
    ...options,
    clients: { ...clients, tls: null },
    links: { ...links, tls: null },
    tier: null,
    uplink: null,
    reloadable: { ...reloadable, pools: [] },
  };
}
