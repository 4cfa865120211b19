// Loaded before a router (`node --import`): who connects to the Unix socket that PROBE_SOCKET names is told what it saw
// since the last time, as one JSON object.
//
//   loop delay   of the event loop, ms
//   writes       calls that hand bytes to a socket of a client: one system call each, unless the socket is full. Clients
//                are those who connect to PROBE_PORT
//   memory       bytes; with PROBE_COLLECT after forced collections, so that nothing in it is garbage

import { createServer, type Socket } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { subscribe } from 'node:diagnostics_channel';
import { setTimeout as delay } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

const RESOLUTION_MS = 1;
const NS_PER_MS = 1e6;
const COLLECTIONS = 4;
const BETWEEN_MS = 150;
/** Of libuv's streams as Node wraps them. */
const WRITES = [
  'writeBuffer',
  'writev',
  'writeLatin1String',
  'writeUtf8String',
  'writeAsciiString',
] as const;

type Handle = Record<string, (...args: unknown[]) => unknown>;

const path = process.env['PROBE_SOCKET'];
if (path !== undefined) watch(path);

function watch(socket: string): void {
  const loop = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  loop.enable();
  const writes = countWrites(Number(process.env['PROBE_PORT'] ?? 0));
  const collect = process.env['PROBE_COLLECT'] === undefined ? null : collector();
  const look = async (): Promise<object> => {
    const seen = { ...loopDelay(loop), clientWrites: writes.take() };
    for (let round = 0; collect !== null && round < COLLECTIONS; round += 1) {
      collect();
      await delay(BETWEEN_MS);
    }
    const { rss, heapUsed, external } = process.memoryUsage();
    loop.reset();
    return { ...seen, rss, liveBytes: heapUsed + external };
  };
  // A signal would be the router's own affair.
  createServer((asking) => void look().then((seen) => asking.end(JSON.stringify(seen))))
    .listen(socket)
    .unref();
}

/** The histogram holds the time from tick to tick, of which the resolution is none of the loop's. */
function loopDelay(loop: ReturnType<typeof monitorEventLoopDelay>): object {
  const ms = (ns: number): number => Math.max(0, ns / NS_PER_MS - RESOLUTION_MS);
  const [p50, p999] = [loop.percentile(50), loop.percentile(99.9)];
  return { loopMsP50: ms(p50), loopMsP999: ms(p999), loopMsMax: ms(loop.max) };
}

function collector(): () => void {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as () => void;
}

/** Counts on the prototype that all sockets' handles share; only those of clients count. */
function countWrites(port: number): { take(): number } {
  let count = 0;
  const clients = new WeakSet<object>();
  let wrapped: object | null = null;
  subscribe('net.server.socket', (message) => {
    const { socket } = message as { socket: Socket & { _handle: Handle | null } };
    const handle = socket._handle;
    if (handle === null || socket.localPort !== port) return;
    clients.add(handle);
    const prototype = writerOf(handle);
    if (prototype === null || wrapped === prototype) return;
    wrapped = prototype;
    for (const name of WRITES) {
      const write = prototype[name];
      if (write === undefined) continue;
      prototype[name] = function counted(this: Handle, ...args: unknown[]): unknown {
        if (clients.has(this)) count += 1;
        return write.apply(this, args);
      };
    }
  });
  return {
    take() {
      const seen = count;
      count = 0;
      return seen;
    },
  };
}

function writerOf(handle: Handle): Handle | null {
  let at: Handle | null = handle;
  while (at !== null && !Object.hasOwn(at, WRITES[0]))
    at = Object.getPrototypeOf(at) as Handle | null;
  return at;
}
