import { describe, expect, it } from 'vitest';

import { ReceivedLog } from './received.ts';

const CALL = { atMs: 0, method: 'POST', path: '/' };
const MIB = 1024 * 1024;

describe('received requests', () => {
  it('are kept up to 32 MiB of bodies, the last ones', () => {
    const log = new ReceivedLog(1_000);
    for (let at = 0; at < 40; at += 1) {
      log.add({ ...CALL, atMs: at }, { headers: [], body: Buffer.alloc(MIB) });
    }
    expect(log.list().map(({ atMs }) => atMs)).toEqual(
      Array.from({ length: 32 }, (_, at) => at + 8),
    );
  });

  it('tell only the length of a body that is longer than 1 MiB', () => {
    const log = new ReceivedLog(1_000);
    log.add(CALL, { headers: ['a', 'b'], body: Buffer.alloc(MIB + 1) });
    expect(log.list()).toEqual([
      { ...CALL, headers: [['a', 'b']], body: null, bodyBytes: MIB + 1 },
    ]);
  });
});
