import { createServer } from 'node:net';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { freePort, freePorts } from './free-ports.ts';

afterEach(() => void vi.unstubAllEnvs());

describe('free ports', () => {
  test('are given once, though nobody has bound them yet', async () => {
    const ports: number[] = [];
    for (let round = 0; round < 50; round++) ports.push(...(await freePorts(8)));
    expect(new Set(ports).size).toBe(400);
  });

  test('of test workers at the same moment are others', async () => {
    const portsOf = async (worker: string): Promise<number[]> => {
      vi.stubEnv('VITEST_POOL_ID', worker);
      const ports: number[] = [];
      for (let round = 0; round < 100; round++) ports.push(await freePort());
      return ports.toSorted((a, b) => a - b);
    };
    const [one, two] = [await portsOf('1'), await portsOf('2')];
    expect(Math.max(...one)).toBeLessThan(Math.min(...two));
    for (const port of [...one, ...two]) expect(port).toBeLessThan(32_768);
  });

  test('are none that somebody holds', async () => {
    const [first = 0] = await freePorts(1);
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(first, resolve));
    for (let tried = 0; tried < 100; tried++) expect(await freePort()).not.toBe(first);
    await new Promise((resolve) => holder.close(resolve));
  });
});
