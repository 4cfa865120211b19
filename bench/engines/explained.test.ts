import { describe, expect, it } from 'vitest';
import type { RequestLine } from '../../test/engines/fleet.ts';
import { turnOf } from './bench-cells.harness.ts';
import { explain } from './explained.ts';

const line = (id: string, more: Partial<RequestLine>): readonly [string, RequestLine] => [
  id,
  { id, replica: 'a', reason: 'prefix', queueMs: 0, ...more },
];

describe('what the request log says of a cell', () => {
  const turns = [
    turnOf(0, 0, 900, { requestId: 'r1', replica: 'a' }),
    turnOf(0, 1, 100, { requestId: 'r2', replica: null }),
    turnOf(1, 0, 500, { requestId: 'r3', replica: 'b' }),
    turnOf(1, 1, 300, { requestId: 'r4', replica: 'a' }),
    turnOf(2, 0, null, { requestId: 'unlogged' }),
  ];
  const lines = new Map([
    line('r1', { queueMs: 700, attemptTtftMs: 200, predictedTtftMs: 100, reason: 'kv_room' }),
    line('r2', { attemptTtftMs: 100, predictedTtftMs: 100, predictedCachedTokens: 800 }),
    line('r3', { replica: 'b', attemptTtftMs: 500, predictedTtftMs: 250 }),
    line('r4', { queueMs: 40, attemptTtftMs: 260, predictedCachedTokens: 0 }),
  ]);
  const seen = explain(turns, lines);

  it('counts replicas and reasons over the turns that it knows', () => {
    expect(seen.replicas).toEqual({ a: 3, b: 1 });
    expect(seen.reasons).toEqual({ kv_room: 1, prefix: 3 });
    expect(seen.stayedShare).toBe(0.5);
  });

  it('keeps first turns and later ones apart, and the queue from the engine', () => {
    expect(seen.firstQueueMs).toMatchObject({ count: 2, p50: 350 });
    expect(seen.laterQueueMs).toMatchObject({ count: 2, p50: 20 });
    expect(seen.firstEngineMs.p50).toBe(350);
    expect(seen.laterEngineMs.p50).toBe(180);
  });

  it('holds predictions against what came, where there was one', () => {
    expect(seen.ttftTimesPredicted).toMatchObject({ count: 3, p50: 2 });
    expect(seen.predictedCachedShare).toBe(0.4);
  });

  it('names the slowest turns first', () => {
    expect(seen.slowest.map(({ ttftMs }) => ttftMs)).toEqual([900, 500, 300, 100]);
    expect(seen.slowest[0]).toMatchObject({ reason: 'kv_room', queueMs: 700, engineMs: 200 });
  });
});
