import type { Socket } from 'node:net';
import { beforeEach, describe, expect, test } from 'vitest';
import type { FromWorker, Order } from '../../router/regional/workers/messages.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { ManualTime } from '../../shared/runtime/manual-time.ts';
import { NoAnswerError } from '../../router/regional/workers/crew.ts';
import type { Handed } from './acceptor.ts';
import { CrewUnusable } from './crew-unusable.ts';
import { ProcessCrew } from './crew.ts';
import type { CrewProcess, WorkerEnd, WorkerEvents } from './worker-process.ts';

const KILLED: WorkerEnd = { code: null, signal: 'SIGKILL', problem: null };

/** A worker that does as it is told, without a process. */
class FakeWorker implements CrewProcess {
  static readonly all: FakeWorker[] = [];
  readonly number: number;
  readonly pid: number;
  readonly connections = 0;
  readonly untakenForMs = 0;
  readonly readyPools = 1;
  readonly orders: Order['kind'][] = [];
  readonly whenGone: Promise<WorkerEnd>;
  readonly ports: (readonly number[])[] = [];
  /** What it answers to `start`. */
  startFails: Error | null = null;
  private readonly events: WorkerEvents;
  private tellGone: (end: WorkerEnd) => void = () => undefined;

  constructor(number: number, events: WorkerEvents) {
    this.number = number;
    this.pid = 100 + FakeWorker.all.length;
    this.events = events;
    this.whenGone = new Promise((resolve) => (this.tellGone = resolve));
    FakeWorker.all.push(this);
  }

  hand(): void {}

  probe(socket: Socket): void {
    socket.end('here');
  }

  tell(message: Parameters<CrewProcess['tell']>[0]): void {
    if (message.kind === 'ports') this.ports.push(message.ports);
  }

  order(order: Order): Promise<never> {
    this.orders.push(order.kind);
    if (order.kind === 'start' && this.startFails !== null) return Promise.reject(this.startFails);
    if (order.kind === 'close')
      queueMicrotask(() => this.end({ ...KILLED, code: 0, signal: null }));
    return Promise.resolve({ linksPort: 8_000 + this.number } as never);
  }

  kill(): void {
    this.end(KILLED);
  }

  end(end: WorkerEnd, untaken: readonly Handed[] = []): void {
    this.tellGone(end);
    this.events.onGone(end, untaken);
  }

  say(message: Exclude<FromWorker, { kind: 'answer' | 'failure' }>): void {
    this.events.onMessage(message);
  }
}

let time: ManualTime;
let lines: { msg: string; level: number; restartInMs?: number; problem?: string | null }[];
let ended: [number, boolean][];
let untaken: Handed[];
/** What each worker was told of all ports before it listened. */
let told: (readonly number[])[];

beforeEach(() => {
  FakeWorker.all.length = 0;
  time = new ManualTime();
  lines = [];
  ended = [];
  untaken = [];
  told = [];
});

function crewOf(
  count: number,
  spawn = (number: number, events: WorkerEvents): CrewProcess => new FakeWorker(number, events),
  linksPortOf = (_number: number): number => 0,
): ProcessCrew {
  const log = createLog({
    level: 'info',
    readable: false,
    destination: { write: (line) => void lines.push(JSON.parse(line) as never) },
  });
  return new ProcessCrew({
    ...{ count, clock: time, timers: time, log, spawn, drainMs: 1_000 },
    startOf: (_number, _own, linkPorts) => {
      told.push(linkPorts);
      return null as never;
    },
    linksPortOf,
    events: {
      onMessage: () => undefined,
      onEnded: (number, died) => void ended.push([number, died]),
      onUp: () => undefined,
      onUntaken: (handed) => void untaken.push(...handed),
    },
  });
}

const states = (crew: ProcessCrew) => crew.members().map(({ state }) => state);
const worker = (at: number): FakeWorker => {
  const found = FakeWorker.all.at(at);
  if (found === undefined) throw new Error('no such worker');
  return found;
};
/** What the microtasks do. */
const settle = () => new Promise((resolve) => setImmediate(resolve));

describe('a crew', () => {
  test('starts as many as are wanted, and tells each the ports of all', async () => {
    const crew = crewOf(3);
    await crew.start();
    expect(states(crew)).toEqual(['up', 'up', 'up']);
    expect(crew.takers()).toHaveLength(3);
    expect(FakeWorker.all.map(({ ports }) => ports)).toEqual(
      Array.from({ length: 3 }, () => [[8_001, 8_002, 8_003]]),
    );
  });

  test('tells a worker the ports of all before it listens: agents that are there first hear of them', async () => {
    const crew = crewOf(2, undefined, (number) => 8_000 + number);
    await crew.start();
    worker(0).end(KILLED);
    time.advance(1_000);
    await settle();
    expect(told).toEqual(Array.from({ length: 3 }, () => [8_001, 8_002]));
  });

  test('tells no ports that the system has yet to choose', async () => {
    const crew = crewOf(2);
    await crew.start();
    worker(0).end(KILLED);
    time.advance(1_000);
    await settle();
    expect(told).toEqual([[], [], [8_001, 8_002]]);
  });

  test('cannot be where there are no processes, and says why', async () => {
    const crew = crewOf(2, () => {
      throw new Error('not permitted');
    });
    await expect(crew.start()).rejects.toThrow(new CrewUnusable('not permitted'));
  });

  test('cannot be where a worker is not handed its connections', async () => {
    const crew = crewOf(2, (number, events) => {
      const deaf = new FakeWorker(number, events);
      deaf.probe = (socket) => void socket.destroy();
      return deaf;
    });
    await expect(crew.start()).rejects.toThrow(/was not handed its connection/);
    expect(FakeWorker.all).toHaveLength(1);
  });

  test('is none where one of them cannot start: its error is the router’s', async () => {
    const taken = Object.assign(new Error('in use'), { code: 'EADDRINUSE', syscall: 'listen' });
    const crew = crewOf(2, (number, events) => {
      const fake = new FakeWorker(number, events);
      if (number === 2) fake.startFails = taken;
      return fake;
    });
    await expect(crew.start()).rejects.toBe(taken);
    time.advance(60_000);
    expect(FakeWorker.all).toHaveLength(2);
    expect(lines).toEqual([]);
  });
});

describe('a worker that dies', () => {
  test('is started again, later each time, and an error says that it goes on', async () => {
    const crew = crewOf(2);
    await crew.start();
    const handed = { socket: {} as Socket, on: 'tier' } as const;
    worker(0).end(KILLED, [handed]);
    expect(states(crew)).toEqual(['down', 'up']);
    expect(untaken).toEqual([handed]);
    expect(crew.takers()).toHaveLength(1);
    time.advance(99);
    expect(FakeWorker.all).toHaveLength(2);
    time.advance(1);
    await settle();
    expect(states(crew)).toEqual(['up', 'up']);
    for (let k = 0; k < 4; k += 1) {
      worker(-1).end(KILLED);
      time.advance(2_000);
      await settle();
    }
    const deaths = lines.filter(({ msg }) => msg === 'worker died: starting it again');
    expect(deaths.map(({ restartInMs }) => restartInMs)).toEqual([100, 200, 400, 800, 1_600]);
    expect(lines.filter(({ msg }) => msg === 'worker dies again and again')).toHaveLength(1);
    expect(crew.members()[0]).toMatchObject({ deaths: 5, state: 'up' });
    expect(ended).toEqual(Array.from({ length: 5 }, () => [1, true]));
  });

  test('that cannot listen any more is tried again', async () => {
    const crew = crewOf(1, (number, events) => {
      const fake = new FakeWorker(number, events);
      if (FakeWorker.all.length === 2) fake.startFails = new Error('in use');
      return fake;
    });
    await crew.start();
    worker(0).end(KILLED);
    time.advance(100);
    await settle();
    expect(states(crew)).toEqual(['down']);
    expect(lines.map(({ msg, problem }) => [msg, problem])).toEqual([
      ['worker died: starting it again', null],
      ['worker does not start', 'in use'],
    ]);
    time.advance(200);
    await settle();
    expect(states(crew)).toEqual(['up']);
  });

  test('while it starts says so once, though its start fails with it', async () => {
    const crew = crewOf(1, (number, events) => {
      const fake = new FakeWorker(number, events);
      const gone = () => fake.whenGone.then(() => Promise.reject(new NoAnswerError('it ended')));
      if (FakeWorker.all.length === 2) fake.order = gone;
      return fake;
    });
    await crew.start();
    worker(0).end(KILLED);
    time.advance(100);
    worker(1).end(KILLED);
    await settle();
    expect(lines.map(({ msg }) => msg)).toEqual([
      'worker died: starting it again',
      'worker does not start',
    ]);
    time.advance(200);
    await settle();
    expect(states(crew)).toEqual(['up']);
  });

  test('is not started again once the router ends', async () => {
    const crew = crewOf(2);
    await crew.start();
    worker(0).end(KILLED);
    await crew.order<'drain'>(2, { kind: 'drain', acceptMs: 0, drainMs: 0 }, 1);
    worker(1).end(KILLED);
    time.advance(60_000);
    expect(FakeWorker.all).toHaveLength(2);
    expect(ended).toEqual([
      [1, true],
      [2, false],
    ]);
    await crew.gone();
  });
});

test('a worker that is starting when the router ends does not come up any more', async () => {
  const crew = crewOf(2, (number, events) => {
    const fake = new FakeWorker(number, events);
    const { whenGone } = fake;
    const gone = () => whenGone.then(() => Promise.reject(new NoAnswerError('the worker ended')));
    if (FakeWorker.all.length === 3) fake.order = gone;
    return fake;
  });
  await crew.start();
  worker(0).end(KILLED);
  time.advance(100);
  expect(states(crew)).toEqual(['starting', 'up']);
  await crew.order<'drain'>(2, { kind: 'drain', acceptMs: 0, drainMs: 0 }, 1);
  await settle();
  expect(states(crew)).toEqual(['down', 'up']);
  expect(lines.map(({ msg }) => msg)).toEqual(['worker died: starting it again']);
  expect(ended).toEqual([
    [1, true],
    [1, false],
  ]);
});

describe('a worker that was signalled', () => {
  test('drains, is closed and replaced at once', async () => {
    const crew = crewOf(2);
    await crew.start();
    worker(0).say({ kind: 'signalled' });
    time.advance(200);
    expect(states(crew)).toEqual(['leaving', 'up']);
    expect(crew.takers()).toHaveLength(1);
    await settle();
    expect(worker(0).orders).toEqual(['start', 'drain', 'close']);
    await settle();
    expect(states(crew)).toEqual(['up', 'up']);
    expect(crew.members()[0]?.deaths).toBe(0);
    expect(ended).toEqual([[1, false]]);
  });

  test('together with its parent does as the parent says', async () => {
    const crew = crewOf(2);
    await crew.start();
    worker(0).say({ kind: 'signalled' });
    time.advance(100);
    await crew.order<'drain'>(1, { kind: 'drain', acceptMs: 5_000, drainMs: 0 }, 1);
    time.advance(100);
    expect(worker(0).orders).toEqual(['start', 'drain']);
  });
});

test('a worker that has said nothing for 30 looks is ended, and another takes its place', async () => {
  const crew = crewOf(2);
  await crew.start();
  const beat = { readiness: { ready: true, checks: [] }, openRequests: 0, readyPools: 1 };
  for (let s = 0; s < 29; s += 1) {
    time.advance(1_000);
    worker(1).say({ kind: 'beat', beat });
  }
  expect(states(crew)).toEqual(['up', 'up']);
  time.advance(1_000);
  expect(lines.map(({ msg }) => msg)).toContain('worker hangs: ending it');
  time.advance(100);
  await settle();
  expect(states(crew)).toEqual(['up', 'up']);
  expect(crew.members().map(({ pid }) => pid)).toEqual([102, 101]);
});
