import { expect, test } from 'vitest';
import { readinessText, type Readiness } from '../../gateway/readiness.ts';
import { SILENT_MS, workersReadiness, type WorkerSays } from './readiness.ts';

const said = (replicas: number): Readiness => ({
  ready: replicas > 0,
  checks: [
    { name: 'configuration', ok: true, says: 'loaded' },
    { name: 'accepting', ok: true, says: 'yes' },
    { name: 'replicas', ok: replicas > 0, says: `${replicas} of 2 ready` },
  ],
});

const worker = (number: number, more: Partial<WorkerSays> = {}): WorkerSays => ({
  number,
  state: 'up',
  readiness: said(2),
  saidAgoMs: 500,
  ...more,
});

test('a router is ready as soon as one worker is, and says of the others why not', () => {
  const readiness = workersReadiness(
    [
      worker(1, { state: 'down', readiness: null, saidAgoMs: null }),
      worker(2),
      worker(3, { readiness: said(0) }),
      worker(4, { saidAgoMs: SILENT_MS }),
      worker(5, { state: 'leaving' }),
      worker(6, { state: 'starting', readiness: null, saidAgoMs: null }),
    ],
    false,
  );
  expect(readinessText(readiness)).toBe(`[+] configuration: loaded
[+] accepting: yes
[+] replicas: 2 of 2 ready
[-] worker 1: died: starting again
[+] worker 2: ready
[-] worker 3: not ready (replicas: 0 of 2 ready)
[-] worker 4: silent for 3 s
[-] worker 5: draining
[-] worker 6: starting
ready
`);
});

test('it is not while none is, or while it leaves', () => {
  expect(workersReadiness([], false).ready).toBe(false);
  expect(workersReadiness([worker(1, { state: 'down' })], false).ready).toBe(false);
  expect(workersReadiness([worker(1, { saidAgoMs: SILENT_MS })], false).ready).toBe(false);
  expect(workersReadiness([worker(1)], true).ready).toBe(false);
});
