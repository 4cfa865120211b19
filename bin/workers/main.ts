// The process of one worker: a whole router without a listener for operators, whose clients' connections come from its
// parent. It ends with its parent, whatever became of that: nothing is left behind.
//
//   SIGTERM   asks the parent, which lets it drain and starts another; a second one ends it at once
//   SIGINT    is the terminal's, for the parent

import type { Socket } from 'node:net';
import type { Serializable } from 'node:child_process';
import { FleetError } from '../../shared/errors.ts';
import { MetricsJournal } from '../../shared/runtime/metrics-journal.ts';
import type { MetricName } from '../../router/regional/metrics.ts';
import type { RunningRouter } from '../../router/regional/start.ts';
import {
  PROBE_ANSWER,
  type Answers,
  type Failure,
  type FromWorker,
  type HandedListener,
  type Order,
  type ToWorker,
  type WorkerStart,
} from '../../router/regional/workers/messages.ts';
import type { ConnectionSource } from '../../shared/runtime/handed-connections.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { processRuntime } from '../cli/process.ts';

const BEAT_MS = 1_000;

type Claimed = Extract<ToWorker, { kind: 'claimed' }>;

class Worker {
  #router: RunningRouter | null = null;
  /** Never where it cannot start: its parent ends it then. */
  readonly #started = Promise.withResolvers<RunningRouter>();
  readonly #takes = new Map<HandedListener, (socket: Socket) => void>();
  readonly #claims = new Map<number, (why: Claimed['why']) => void>();
  #claimed = 0;
  #linkPorts: readonly number[] = [];
  #ended = 0;
  #signalled = false;
  #closed = false;
  #journal: MetricsJournal<MetricName> | null = null;

  listen(): void {
    process.on('message', (message, handle) => {
      this.#receive(message as ToWorker, handle as Socket | undefined);
    });
    process.once('disconnect', () => process.exit(this.#closed ? 0 : 1));
    process.on('SIGINT', () => undefined);
    process.on('SIGHUP', () => undefined);
    process.on('SIGTERM', () => {
      if (this.#signalled) process.exit(1);
      this.#signalled = true;
      post({ kind: 'signalled' });
    });
  }

  #receive(message: ToWorker, handle: Socket | undefined): void {
    switch (message.kind) {
      case 'order':
        return void this.#answer(message.id, message.order);
      case 'connection':
        return this.#connection(handle, message.on);
      case 'probe':
        return void handle?.on('error', () => undefined).end(PROBE_ANSWER);
      case 'ports':
        this.#linkPorts = message.ports;
        this.#router?.workersKnown();
        return;
      case 'claimed':
        this.#claims.get(message.id)?.(message.why);
        this.#claims.delete(message.id);
    }
  }

  #connection(socket: Socket | undefined, on: HandedListener): void {
    post({ kind: 'connections', taken: 1, ended: this.#ended });
    this.#ended = 0;
    const take = this.#takes.get(on);
    if (socket === undefined || take === undefined) {
      // It was closed on its way.
      socket?.destroy();
      return this.#connectionEnded();
    }
    socket.once('close', () => this.#connectionEnded());
    take(socket);
  }

  #connectionEnded(): void {
    this.#ended += 1;
    if (this.#ended > 1) return;
    setImmediate(() => {
      if (this.#ended === 0) return;
      post({ kind: 'connections', taken: 0, ended: this.#ended });
      this.#ended = 0;
    });
  }

  async #answer(id: number, order: Order): Promise<void> {
    try {
      post({ kind: 'answer', id, value: await this.#obey(order) });
    } catch (error) {
      post({ kind: 'failure', id, failure: failureOf(error) });
    }
    if (order.kind !== 'close') return;
    this.#closed = true;
    process.disconnect();
  }

  async #obey(order: Order): Promise<Answers[keyof Answers]> {
    if (order.kind === 'start') return this.#start(order.start);
    // What it is told meanwhile holds for it as for those that are up.
    const router = await this.#started.promise;
    switch (order.kind) {
      case 'status':
        // So what is scraped has all that ended before.
        await this.#journal?.flush();
        return router.status();
      case 'explain': {
        const { body, ...asked } = order.asked;
        // Bytes arrive as what the structured clone makes of a buffer.
        return router.explain({ ...asked, body: Buffer.from(body) });
      }
      case 'reload':
        router.reload(order.reloadable);
        return null;
      case 'mark':
        router.mark(order.on);
        this.#beat();
        return null;
      case 'drain': {
        const { acceptMs, drainMs } = order;
        const drained = router.drain({ acceptMs, drainMs });
        this.#beat();
        await drained;
        return null;
      }
      case 'close':
        await router.close();
        await this.#journal?.flush();
        return null;
    }
  }

  async #start(start: WorkerStart): Promise<Answers['start']> {
    const { number, options, clientsPort, tierPort, linkPorts, marked } = start;
    this.#linkPorts = linkPorts;
    const { startRegionalRouter } = await import('../../router/regional/start.ts');
    const log = createLog(start.log).child({ worker: number });
    process.on('uncaughtException', (err) => {
      log.fatal({ err }, 'a bug: ending');
      process.exit(1);
    });
    const journal = new MetricsJournal<MetricName>(
      (entries) => posted({ kind: 'journal', entries }),
      systemTimers,
    );
    this.#journal = journal;
    const router = await startRegionalRouter(options, processRuntime(log), {
      sources: {
        clients: this.#source('clients', clientsPort),
        tier: tierPort === null ? null : this.#source('tier', tierPort),
      },
      metrics: journal,
      linkPorts: () => this.#linkPorts,
      claim: (attempt) => this.#claim(attempt),
    });
    this.#router = router;
    if (marked) router.mark(true);
    this.#started.resolve(router);
    systemTimers.every(BEAT_MS, () => this.#beat());
    this.#beat();
    return { linksPort: router.linksPort };
  }

  /** Asks the parent, which knows what all workers have let in. */
  #claim(attempt: string): Promise<Claimed['why']> {
    this.#claimed += 1;
    const id = this.#claimed;
    return new Promise((resolve) => {
      this.#claims.set(id, resolve);
      post({ kind: 'claim', id, attempt });
    });
  }

  #source(on: HandedListener, port: number): ConnectionSource {
    return { port, start: (take) => void this.#takes.set(on, take) };
  }

  #beat(): void {
    const router = this.#router;
    if (router === null) return;
    post({ kind: 'beat', beat: router.beat() });
  }
}

function post(message: FromWorker): void {
  void posted(message);
}

/** Resolves when it has left, or cannot: then the process ends anyway. */
function posted(message: FromWorker): Promise<void> {
  return new Promise((resolve) => {
    if (!process.connected || process.send === undefined) return resolve();
    process.send(message as unknown as Serializable, undefined, undefined, () => resolve());
  });
}

function failureOf(error: unknown): Failure {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof FleetError) {
    return { message, code: error.code, param: error.param, system: null };
  }
  return { message, code: null, param: null, system: systemOf(error) };
}

function systemOf(error: unknown): Failure['system'] {
  let inner: unknown = error;
  for (let depth = 0; depth < 4 && inner instanceof Error; depth += 1) {
    const { code, syscall, address, port } = inner as NodeJS.ErrnoException & {
      address?: string;
      port?: number;
    };
    if (typeof code === 'string' && typeof syscall === 'string') {
      return {
        code,
        syscall,
        ...(address === undefined ? {} : { address }),
        ...(port === undefined ? {} : { port }),
      };
    }
    inner = inner.cause;
  }
  return null;
}

new Worker().listen();
