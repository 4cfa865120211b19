// Ports for a process of its own that has to be told its port before it starts. A port that the system chose and that was
// let go can be somebody's again before the process binds it: it lies where the system also takes the ports of outgoing
// connections and of every `listen(0)`. These lie below that range (from 32,768 on Linux), at random; test workers that run
// at the same moment have ranges of their own, and none gives a port twice: between looking and binding lies a process's
// start.

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const FIRST = 12_000;
/** Ports of one worker. */
const RANGE = 2_500;
const RANGES = 8;
const TRIES = 100;

const given = new Set<number>();

/** One port that is free now. */
export async function freePort(): Promise<number> {
  return (await freePorts(1))[0]!;
}

/** `count` ports in a row that are all free now: the ranks of an engine count theirs up. */
export async function freePorts(count: number): Promise<number[]> {
  // As many as that have been given up long ago.
  if (given.size > RANGE / 2) given.clear();
  const from = FIRST + RANGE * (Number(process.env['VITEST_POOL_ID'] ?? 0) % RANGES);
  for (let tried = 0; tried < TRIES; tried++) {
    const first = randomInt(from, from + RANGE - count + 1);
    const ports = Array.from({ length: count }, (_, index) => first + index);
    if (ports.some((port) => given.has(port))) continue;
    for (const port of ports) given.add(port);
    const free = await Promise.all(ports.map(isFree));
    if (free.every((each) => each)) return ports;
  }
  throw new Error(`no ${count} free ports in a row between ${from} and ${from + RANGE - 1}`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, () => server.close(() => resolve(true)));
  });
}
