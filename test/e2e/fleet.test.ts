// What a test says when a process of its fleet has ended: how, and its last words.

import { createServer, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet } from './fleet.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.open('pools:\n  - id: one\n');
});
afterAll(() => fleet.close());

test('a process that cannot start is told with its exit code and what it said', async () => {
  const holder = createServer();
  await new Promise<void>((resolve) => holder.listen(0, '127.0.0.1', resolve));
  const { port } = holder.address() as AddressInfo;
  const start = fleet.startEngine('m', port);
  await expect(start).rejects.toThrow(/^engine-sim --port \d+ .* ended: exit code [1-9]/);
  await expect(start).rejects.toThrow(String(port));
  await expect(start).rejects.toThrow(/in use/i);
  holder.close();
});

test('one that is killed is told with its signal', async () => {
  const { running } = await fleet.startEngine('m');
  expect(running.fate).toBe(null);
  await running.end('SIGKILL');
  expect(running.fate).toMatch(/^engine-sim .* ended: SIGKILL\n.*http:/s);
  await expect(running.says(/never/)).rejects.toThrow('ended: SIGKILL');
});
