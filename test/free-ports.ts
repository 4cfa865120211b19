// Ports for a process of its own that has to be told its port before it starts. A port that the system chose and that was
// let go can be somebody's again before the process binds it: it lies where the system also takes the ports of outgoing
// connections and of every `listen(0)`. These lie below that range (from 32,768 on Linux), at random.

import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

const FIRST = 12_000;
const LAST = 31_999;
const TRIES = 100;

/** One port that is free now. */
export async function freePort(): Promise<number> {
  return (await freePorts(1))[0]!;
}

/** `count` ports in a row that are all free now: the ranks of an engine count theirs up. */
export async function freePorts(count: number): Promise<number[]> {
  for (let tried = 0; tried < TRIES; tried++) {
    const first = randomInt(FIRST, LAST - count + 2);
    const ports = Array.from({ length: count }, (_, index) => first + index);
    const free = await Promise.all(ports.map(isFree));
    if (free.every((each) => each)) return ports;
  }
  throw new Error(`no ${count} free ports in a row between ${FIRST} and ${LAST}`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, () => server.close(() => resolve(true)));
  });
}
