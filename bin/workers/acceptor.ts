// A listener of a router with workers, for clients or for global routers. The parent accepts and hands each connection to the worker that has
// the fewest, of those that know a ready replica in the most pools: one that has just begun, or that agents do not reach,
// would refuse what the others can serve. It never reads from one, TLS included, whose handshakes are the workers' work.
//
// Why not otherwise: each column is a measurement of its own, with a server of one line in the place of a router.
//
//   spread   64 connections to 4 workers, five times: the fewest and the most that a worker had
//   CPU      6,000 short connections on 2 cores: of the parent and of the workers, for each connection
//   lost     64 connections arrive while one worker stands still, which is killed then
//
//                              spread         CPU                   lost
//   handed by the parent       16…16          75 µs + 220 µs        none
//   cluster, round robin       10…27          77 µs + 227 µs        1 hangs for ever
//   cluster, shared handle      1…49           0 µs + 150 µs        none
//   reusePort                  11…23           0 µs + 160 µs        17 of 64 reset: the dead one's queue
//
// A connection is the parent's until the worker has said that it took it: where the worker dies before, it goes to another.
// While no worker can take any, up to `HELD_MAX` wait `HELD_MS` at most; with those that workers have been handed and
// have not taken they are `WAITING_MAX` at most, further ones are closed.

import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import type { HandedListener } from '../../router/regional/workers/messages.ts';
import type { Timers } from '../../shared/runtime/timers.ts';

/** A worker as the place for the next connection. */
export interface Taker {
  /** Connections that it was handed and has not ended. */
  readonly connections: number;
  /** How long the first of those that it has not taken yet has waited, ms; 0: it has taken all. */
  readonly untakenForMs: number;
  /** Pools in which it last said that a replica is ready. */
  readonly readyPools: number;
  hand(socket: Socket, on: HandedListener): void;
}

/** A connection, and where it came in. */
export interface Handed {
  readonly socket: Socket;
  readonly on: HandedListener;
}

const WAITING_MAX = 4_096;
const HELD_MAX = 1_024;
const HELD_MS = 5_000;
/** A worker that has not taken a connection for so long, ms, gets the next only where the others are no better: it hangs. */
const HANGS_MS = 250;

export class Acceptor {
  readonly #server: Server;
  readonly #timers: Timers;
  readonly #takers: () => readonly Taker[];
  readonly #held = new Map<Socket, () => void>();
  readonly #onDrop: () => void;
  readonly #on: HandedListener;
  #turn = 0;
  #closed = false;

  constructor(deps: {
    on: HandedListener;
    timers: Timers;
    takers: () => readonly Taker[];
    onDrop: () => void;
    /** Absent: `WAITING_MAX`. */
    waitingMax?: number;
  }) {
    this.#on = deps.on;
    this.#timers = deps.timers;
    this.#takers = deps.takers;
    this.#onDrop = deps.onDrop;
    this.#server = createServer({ pauseOnConnect: true }, (socket) => this.give(socket));
    this.#server.maxConnections = deps.waitingMax ?? WAITING_MAX;
    this.#server.on('drop', () => this.#onDrop());
  }

  async listen({ host, port }: { readonly host: string; readonly port: number }): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ host, port }, () => {
        this.#server.off('error', reject);
        resolve();
      });
    });
    return (this.#server.address() as AddressInfo).port;
  }

  /** Connections that wait for a worker. */
  get held(): number {
    return this.#held.size;
  }

  /** To a worker, or kept until there is one. */
  give(socket: Socket): void {
    if (this.#closed) return void socket.destroy();
    socket.on('error', () => socket.destroy());
    const taker = pickTaker(this.#takers(), this.#turn);
    this.#turn += 1;
    if (taker !== null) return taker.hand(socket, this.#on);
    if (this.#held.size >= HELD_MAX) return this.#drop(socket);
    this.#held.set(
      socket,
      this.#timers.after(HELD_MS, () => {
        this.#held.delete(socket);
        this.#drop(socket);
      }),
    );
  }

  /** A worker is up: what waited for one is given. */
  release(): void {
    const held = [...this.#held];
    this.#held.clear();
    for (const [socket, cancel] of held) {
      cancel();
      this.give(socket);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.release();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #drop(socket: Socket): void {
    this.#onDrop();
    socket.destroy();
  }
}

/** Of those that take and know the most, the one with the fewest connections; of several, the next in turn. */
export function pickTaker<T extends Omit<Taker, 'hand'>>(
  takers: readonly T[],
  turn: number,
): T | null {
  const quick = takers.filter(({ untakenForMs }) => untakenForMs < HANGS_MS);
  const able = quick.length > 0 ? quick : takers;
  const most = Math.max(...able.map(({ readyPools }) => readyPools));
  const among = able.filter(({ readyPools }) => readyPools === most);
  const fewest = Math.min(...among.map(({ connections }) => connections));
  const best = among.filter(({ connections }) => connections === fewest);
  return best[turn % Math.max(1, best.length)] ?? null;
}
