// The worker processes of a router: as many as are wanted, each started again when it ends, until the router does.
//
//   death     a worker that nobody told to end is started again after a pause that grows (`RestartPace`); the others go on,
//             its untaken connections go to them
//   signal    a worker that gets a SIGTERM of its own is let drain, then replaced. One that comes to the whole group of
//             processes is the router's end: the parent hears it too, and waits `GROUP_MS` to know
//   parent    when it ends, however, so do the workers: their channel to it is gone

import { connect, createServer, type AddressInfo } from 'node:net';
import type { Clock } from '../../shared/runtime/clock.ts';
import type { Logger } from '../../shared/runtime/log.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { NoAnswerError, type Crew, type Member } from '../../router/regional/workers/crew.ts';
import {
  PROBE_ANSWER,
  type Answers,
  type FromWorker,
  type Order,
  type ToWorker,
  type WorkerStart,
} from '../../router/regional/workers/messages.ts';
import type { Handed, Taker } from './acceptor.ts';
import { CrewUnusable } from './crew-unusable.ts';
import { RestartPace } from './restart-pace.ts';
import {
  WorkerProcess,
  type CrewProcess,
  type WorkerEnd,
  type WorkerEvents,
} from './worker-process.ts';

export interface CrewDeps {
  readonly count: number;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly log: Logger;
  /** What worker `number` is to run with now. `linkPorts`: of all workers, `linksPort` its own among them. */
  readonly startOf: (
    number: number,
    linksPort: number,
    linkPorts: readonly number[],
  ) => WorkerStart;
  /** The port that worker `number` is to have; 0: any. */
  readonly linksPortOf: (number: number) => number;
  readonly drainMs: number;
  readonly events: CrewEvents;
  /** Starts a process; absent: a real one. Throws where there can be none. */
  readonly spawn?: (number: number, events: WorkerEvents) => CrewProcess;
}

export interface CrewEvents {
  readonly onMessage: (worker: number, message: FromWorker) => void;
  /** `died`: nobody had told it. */
  readonly onEnded: (worker: number, died: boolean) => void;
  /** It can be handed connections. */
  readonly onUp: () => void;
  /** Connections that a worker did not take before it ended. */
  readonly onUntaken: (untaken: readonly Handed[]) => void;
}

interface Seat {
  readonly number: number;
  readonly pace: RestartPace;
  linksPort: number;
  process: CrewProcess | null;
  /** Looks of the parent's since it last said something. */
  missed: number;
  state: Member['state'];
  startedMs: number;
  /** What its process met at its start; null: nothing. */
  problem: string | null;
  deaths: number;
  cancelRestart: () => void;
}

const START_MS = 30_000;
/** ms for the first connection to arrive through a worker. */
const PROBE_MS = 10_000;
const CLOSE_MS = 5_000;
const GROUP_MS = 200;
const END_MS = 1_000;
const LOOK_MS = 1_000;
/** Looks, not ms: a machine that stood still has not kept its workers from anything. */
const MISSED_MAX = 30;

export class ProcessCrew implements Crew {
  readonly #deps: CrewDeps;
  readonly #seats: readonly Seat[];
  #starting = true;
  #stopWatch: () => void = () => undefined;
  #ending = false;

  constructor(deps: CrewDeps) {
    this.#deps = deps;
    this.#seats = Array.from({ length: deps.count }, (_, at) => ({
      number: at + 1,
      pace: new RestartPace(),
      linksPort: deps.linksPortOf(at + 1),
      process: null,
      missed: 0,
      state: 'down',
      startedMs: 0,
      problem: null,
      deaths: 0,
      cancelRestart: () => undefined,
    }));
  }

  /**
   * All of them, up. Rejects with what a worker met; with `CrewUnusable` where this machine has no processes for it, or
   * no connections reach them. None is left then.
   */
  async start(): Promise<void> {
    try {
      const [first, ...further] = this.#seats;
      if (first === undefined) throw new Error('a crew of none');
      await probe(this.#fork(first), this.#deps.timers);
      for (const seat of further) this.#fork(seat);
      await Promise.all(this.#seats.map((seat) => this.#begin(seat)));
      this.#starting = false;
      this.#stopWatch = this.#deps.timers.every(LOOK_MS, () => this.#watch());
    } catch (error) {
      for (const { process } of this.#seats) process?.kill();
      await this.gone();
      throw error;
    }
    this.#tellPorts();
  }

  /** From now on nobody is started again, and who is not up yet does not come up any more. */
  end(): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#stopWatch();
    for (const seat of this.#seats) {
      seat.cancelRestart();
      if (seat.state === 'starting') seat.process?.kill();
    }
  }

  /** Resolves when no process is left; what has not ended by itself within `END_MS` is ended. */
  async gone(): Promise<void> {
    this.end();
    const left = this.#seats.flatMap(({ process }) => process ?? []);
    const cancel = this.#deps.timers.after(END_MS, () => {
      for (const process of left) process.kill();
    });
    await Promise.all(left.map(({ whenGone }) => whenGone));
    cancel();
  }

  /** What it has claimed; one that is gone meanwhile needs no answer. */
  answer(number: number, claimed: Extract<ToWorker, { kind: 'claimed' }>): void {
    this.#seats[number - 1]?.process?.tell(claimed);
  }

  members(): readonly Member[] {
    return this.#seats.map(({ number, process, state, linksPort, deaths }) => ({
      number,
      pid: process?.pid ?? null,
      state,
      linksPort,
      connections: process?.connections ?? 0,
      deaths,
    }));
  }

  /** Whom connections may be handed to. */
  takers(): readonly Taker[] {
    return this.#seats.flatMap(({ process, state }) =>
      process !== null && state === 'up' ? [process] : [],
    );
  }

  async order<Kind extends Order['kind']>(
    number: number,
    order: Extract<Order, { readonly kind: Kind }>,
    timeoutMs: number,
  ): Promise<Answers[Kind]> {
    const process = this.#seats[number - 1]?.process ?? null;
    if (process === null) throw new NoAnswerError(`worker ${number} has no process`);
    if (order.kind === 'drain' || order.kind === 'close') this.end();
    return (await process.order(order, timeoutMs)) as Answers[Kind];
  }

  // ── privates ─────────────────────────────────────────────────────────────────────────────────────────

  #fork(seat: Seat): CrewProcess {
    const { clock } = this.#deps;
    seat.state = 'starting';
    seat.startedMs = clock.nowMs();
    seat.missed = 0;
    try {
      const process = this.#spawn(seat.number, {
        onMessage: (message) => this.#heard(seat, message),
        onGone: (end, untaken) => this.#gone(seat, end, untaken),
      });
      seat.process = process;
      seat.problem = null;
      return process;
    } catch (cause) {
      throw new CrewUnusable(cause instanceof Error ? cause.message : String(cause), { cause });
    }
  }

  async #begin(seat: Seat): Promise<void> {
    const start = this.#deps.startOf(seat.number, seat.linksPort, this.#linkPorts());
    const order = { kind: 'start', start } as const;
    if (seat.process === null) throw new NoAnswerError('the worker is gone');
    const answer = await seat.process.order(order, START_MS);
    const { linksPort } = answer as Answers['start'];
    seat.linksPort = linksPort;
    seat.state = 'up';
    this.#deps.events.onUp();
  }

  /** Agents are told at their welcome: a worker knows them before it listens. Empty while the system has yet to choose. */
  #linkPorts(): readonly number[] {
    const ports = this.#seats.map(({ linksPort }) => linksPort);
    return ports.includes(0) ? [] : ports;
  }

  #tellPorts(): void {
    const ports = this.#linkPorts();
    for (const { process } of this.#seats) process?.tell({ kind: 'ports', ports });
  }

  /** It says something every second: one that has not for long is ended, so that its place is taken. */
  #watch(): void {
    for (const seat of this.#seats) {
      if (seat.process === null || seat.state === 'starting') continue;
      seat.missed += 1;
      if (seat.missed !== MISSED_MAX) continue;
      const fields = { worker: seat.number, pid: seat.process.pid, silentS: MISSED_MAX };
      this.#deps.log.error(fields, 'worker hangs: ending it');
      seat.process.kill();
    }
  }

  #spawn(number: number, events: WorkerEvents): CrewProcess {
    const { spawn, clock, timers } = this.#deps;
    return spawn?.(number, events) ?? new WorkerProcess(number, { clock, timers }, events);
  }

  #heard(seat: Seat, message: FromWorker): void {
    seat.missed = 0;
    if (message.kind !== 'signalled') return this.#deps.events.onMessage(seat.number, message);
    this.#deps.timers.after(GROUP_MS, () => {
      if (!this.#ending && seat.state === 'up') void this.#replace(seat);
    });
  }

  /** Somebody has told this one worker to end. */
  async #replace(seat: Seat): Promise<void> {
    const { log, drainMs } = this.#deps;
    seat.state = 'leaving';
    log.info(
      { worker: seat.number, pid: seat.process?.pid },
      'worker drains: a signal told it to end',
    );
    try {
      await seat.process?.order({ kind: 'drain', acceptMs: 0, drainMs }, drainMs + CLOSE_MS);
      await seat.process?.order({ kind: 'close' }, CLOSE_MS);
    } catch {
      // It ended before it was done, or hangs.
      seat.process?.kill();
    }
  }

  #gone(seat: Seat, end: WorkerEnd, untaken: readonly Handed[]): void {
    const { events, clock } = this.#deps;
    const died = seat.state !== 'leaving' && !this.#ending;
    const wasUp = seat.state === 'up';
    seat.process = null;
    seat.state = 'down';
    if (died) seat.deaths += 1;
    events.onEnded(seat.number, died);
    events.onUntaken(untaken);
    if (this.#ending || this.#starting) return;
    if (!died) return this.#again(seat);
    const { delayMs, alarm } = seat.pace.died(clock.nowMs() - seat.startedMs);
    this.#mourn(seat, end, { wasUp, delayMs, alarm });
    seat.cancelRestart = this.#deps.timers.after(delayMs, () => this.#again(seat));
  }

  /** One line a death: one that was never up says what it met. */
  #mourn(
    seat: Seat,
    end: WorkerEnd,
    { wasUp, delayMs, alarm }: { wasUp: boolean; delayMs: number; alarm: boolean },
  ): void {
    const { log } = this.#deps;
    const { number, deaths } = seat;
    const problem = seat.problem ?? end.problem;
    const fields = { worker: number, ...end, problem, deaths, restartInMs: delayMs };
    const words = wasUp ? 'worker died: starting it again' : 'worker does not start';
    log.warn(fields, words);
    if (!alarm) return;
    log.error({ worker: number, deaths }, 'worker dies again and again');
  }

  #again(seat: Seat): void {
    if (this.#ending) return;
    let process: CrewProcess;
    try {
      process = this.#fork(seat);
    } catch (error) {
      this.#gone(seat, { code: null, signal: null, problem: String(error) }, []);
      return;
    }
    this.#begin(seat).then(
      () => {
        this.#deps.log.info({ worker: seat.number, pid: seat.process?.pid }, 'worker up again');
        this.#tellPorts();
      },
      (error: unknown) => {
        // Where it has ended itself, that was said.
        if (this.#ending || seat.process !== process) return;
        seat.problem = error instanceof Error ? error.message : String(error);
        process.kill();
      },
    );
  }
}

/** Sends one connection through a worker and back: sandboxes may let a process be started and no socket be handed to it. */
async function probe(worker: CrewProcess, timers: Timers): Promise<void> {
  const server = createServer({ pauseOnConnect: true }, (socket) => worker.probe(socket));
  let cancel: () => void = () => undefined;
  try {
    await new Promise<void>((resolve, reject) => {
      const failed = (why: string) => reject(new CrewUnusable(why));
      cancel = timers.after(PROBE_MS, () => failed('no connection reaches a worker'));
      void worker.whenGone.then(({ problem }) => failed(problem ?? 'a worker ends at once'));
      server.once('error', (error) => failed(error.message));
      server.listen({ host: '127.0.0.1', port: 0 }, () => {
        const { port } = server.address() as AddressInfo;
        const socket = connect({ host: '127.0.0.1', port });
        let got = '';
        socket.on('data', (piece) => (got += String(piece)));
        socket.on('error', (error) => failed(error.message));
        socket.on('close', () => {
          if (got === PROBE_ANSWER) resolve();
          else failed('a worker was not handed its connection');
        });
      });
    });
  } finally {
    cancel();
    server.close();
  }
}
