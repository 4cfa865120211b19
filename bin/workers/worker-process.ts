// One worker process as its parent holds it: started, told, asked, handed connections, and gone at the end.

import { fork, type ChildProcess, type Serializable } from 'node:child_process';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { FleetError } from '../../shared/errors.ts';
import type { Clock } from '../../shared/runtime/clock.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { NoAnswerError } from '../../router/regional/workers/crew.ts';
import type {
  Answers,
  Failure,
  FromWorker,
  HandedListener,
  Order,
  ToWorker,
} from '../../router/regional/workers/messages.ts';
import type { Handed, Taker } from './acceptor.ts';

const ENTRY = join(import.meta.dirname, 'main.ts');
/** Of Node: how a heap is laid out and collected, which goes for workers too. */
const HEAP_FLAGS: ReadonlySet<string | undefined> = new Set([
  '--min-semi-space-size',
  '--max-semi-space-size',
  '--v8-pool-size',
  '--heap-growing-percent',
  '--no-memory-reducer',
  '--external-memory-accounted-in-global-limit',
]);

export interface WorkerEvents {
  readonly onMessage: (message: Exclude<FromWorker, { kind: 'answer' | 'failure' }>) => void;
  /** Its process has ended, or never was. `untaken`: connections that it was handed and did not take. */
  readonly onGone: (end: WorkerEnd, untaken: readonly Handed[]) => void;
}

export interface WorkerEnd {
  readonly code: number | null;
  readonly signal: string | null;
  /** It could not be started. */
  readonly problem: string | null;
}

interface Waiting {
  readonly answered: (value: Answers[keyof Answers]) => void;
  readonly failed: (error: Error) => void;
}

/** What the crew asks of a process; a test has others. */
export interface CrewProcess extends Taker {
  readonly pid: number | null;
  /** Resolves when it has ended, or could not be started. */
  readonly whenGone: Promise<WorkerEnd>;
  /** A connection for `PROBE_ANSWER`. */
  probe(socket: Socket): void;
  tell(message: Extract<ToWorker, { kind: 'ports' | 'claimed' }>): void;
  order(order: Order, timeoutMs: number): Promise<Answers[keyof Answers]>;
  kill(): void;
}

export class WorkerProcess implements CrewProcess {
  readonly #child: ChildProcess;
  readonly #timers: Timers;
  readonly #clock: Clock;
  readonly #events: WorkerEvents;
  readonly #waiting = new Map<number, Waiting>();
  #untaken: (Handed & { readonly handedMs: number })[] = [];
  #handed = 0;
  #ended = 0;
  #orders = 0;
  #readyPools = 0;
  #gone = false;
  readonly #whenGone: Promise<WorkerEnd>;
  #tellGone: (end: WorkerEnd) => void = () => undefined;

  /** Throws where the system refuses a process. */
  constructor(number: number, time: { clock: Clock; timers: Timers }, events: WorkerEvents) {
    this.#timers = time.timers;
    this.#clock = time.clock;
    this.#events = events;
    this.#whenGone = new Promise((resolve) => (this.#tellGone = resolve));
    this.#child = fork(ENTRY, [String(number)], {
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      execArgv: process.execArgv.filter((flag) => HEAP_FLAGS.has(flag.split('=', 1)[0])),
    });
    this.#child.on('message', (message) => this.#receive(message as FromWorker));
    this.#child.once('error', (error) => {
      if (this.#child.pid === undefined)
        this.#end({ code: null, signal: null, problem: error.message });
    });
    this.#child.once('exit', (code, signal) => this.#end({ code, signal, problem: null }));
  }

  get pid(): number | null {
    return this.#gone ? null : (this.#child.pid ?? null);
  }

  get whenGone(): Promise<WorkerEnd> {
    return this.#whenGone;
  }

  get connections(): number {
    return this.#handed - this.#ended;
  }

  get untakenForMs(): number {
    const first = this.#untaken[0];
    return first === undefined ? 0 : this.#clock.nowMs() - first.handedMs;
  }

  get readyPools(): number {
    return this.#readyPools;
  }

  hand(socket: Socket, on: HandedListener): void {
    this.#handed += 1;
    this.#untaken.push({ socket, on, handedMs: this.#clock.nowMs() });
    this.#post({ kind: 'connection', on }, socket);
  }

  probe(socket: Socket): void {
    this.#post({ kind: 'probe' }, socket);
  }

  tell(message: Extract<ToWorker, { kind: 'ports' | 'claimed' }>): void {
    this.#post(message);
  }

  order(order: Order, timeoutMs: number): Promise<Answers[keyof Answers]> {
    if (this.#gone) return Promise.reject(new NoAnswerError('the worker is gone'));
    this.#orders += 1;
    const id = this.#orders;
    return new Promise((resolve, reject) => {
      const cancel = this.#timers.after(timeoutMs, () => {
        this.#waiting.delete(id);
        reject(
          new NoAnswerError(`the worker did not answer within ${timeoutMs} ms (${order.kind})`),
        );
      });
      const done = (): void => {
        cancel();
        this.#waiting.delete(id);
      };
      this.#waiting.set(id, {
        answered: (value) => {
          done();
          resolve(value);
        },
        failed: (error) => {
          done();
          reject(error);
        },
      });
      this.#post({ kind: 'order', id, order });
    });
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }

  #post(message: ToWorker, socket?: Socket): void {
    if (this.#gone || !this.#child.connected) return;
    // It tells by its end that it could not be told.
    const failed = (): void => undefined;
    const sent = message as unknown as Serializable;
    if (socket === undefined) this.#child.send(sent, failed);
    else this.#child.send(sent, socket, { keepOpen: true }, failed);
  }

  #receive(message: FromWorker): void {
    switch (message.kind) {
      case 'answer':
        return this.#waiting.get(message.id)?.answered(message.value);
      case 'failure':
        return this.#waiting.get(message.id)?.failed(errorOf(message.failure));
      case 'connections':
        // The worker has its own hold of them now.
        for (const { socket } of this.#untaken.splice(0, message.taken)) socket.destroy();
        this.#ended += message.ended;
        return;
      case 'beat':
        this.#readyPools = message.beat.readyPools;
        this.#events.onMessage(message);
        return;
      default:
        this.#events.onMessage(message);
    }
  }

  #end(end: WorkerEnd): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#tellGone(end);
    for (const { failed } of [...this.#waiting.values()]) {
      failed(
        new NoAnswerError(`the worker ended (${end.signal ?? end.code ?? end.problem ?? '?'})`),
      );
    }
    const untaken = this.#untaken;
    this.#untaken = [];
    this.#events.onGone(end, untaken);
  }
}

function errorOf({ message, code, param, system }: Failure): Error {
  if (code !== null) return new FleetError(code, message, param === null ? {} : { param });
  return system === null ? new Error(message) : Object.assign(new Error(message), system);
}
