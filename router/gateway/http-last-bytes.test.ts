import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { beforeEach, describe, expect, test } from 'vitest';
import { LastBytes } from './http-last-bytes.ts';

const STALL_MS = 5_000;

/** What an answer is to those who wait for its last bytes. */
class Answer extends EventEmitter {
  writableLength = 0;
  /** Null while another one has its connection. */
  socket: object | null = {};
  closed = false;
  destroyed = false;

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.closed = true;
    this.emit('close');
  }
}

describe('the connection of an answer that failed', () => {
  let now: number;
  let ticks: Set<() => void>;
  let stalls: number;
  let answer: Answer;
  let lastBytes: LastBytes;

  beforeEach(() => {
    now = 0;
    stalls = 0;
    ticks = new Set();
    answer = new Answer();
    const timers = {
      after: () => () => undefined,
      every: (_intervalMs: number, task: () => void) => {
        ticks.add(task);
        return () => void ticks.delete(task);
      },
    };
    const clock = { nowMs: () => now, wallMs: () => now };
    const rule = { stallMs: () => STALL_MS, cut: () => (stalls += 1) };
    lastBytes = new LastBytes({ clock, timers }, rule);
  });

  const breakOff = (): void => lastBytes.breakOff(answer as unknown as ServerResponse);
  const passTo = (ms: number): void => {
    while (now < ms) {
      now += 50;
      for (const tick of ticks) tick();
    }
  };

  test('is cut half a second after the error has left, so that its client reads it before', () => {
    answer.writableLength = 10;
    breakOff();
    passTo(2_000);
    expect(answer.destroyed).toBe(false);
    answer.writableLength = 0;
    passTo(2_500);
    expect(answer.destroyed).toBe(false);
    passTo(2_600);
    expect([answer.destroyed, stalls, ticks.size]).toEqual([true, 0, 0]);
  });

  test('is cut, and counted as stalled, where the client takes nothing', () => {
    answer.writableLength = 10;
    breakOff();
    passTo(STALL_MS - 50);
    expect(answer.destroyed).toBe(false);
    passTo(STALL_MS);
    expect([answer.destroyed, stalls, ticks.size]).toEqual([true, 1, 0]);
  });

  test('is not cut before its turn, where others that are asked for on it come first', () => {
    answer.writableLength = 10;
    answer.socket = null;
    breakOff();
    passTo(3 * STALL_MS);
    expect([answer.destroyed, stalls]).toEqual([false, 0]);
    answer.socket = {};
    passTo(4 * STALL_MS - 50);
    expect(answer.destroyed).toBe(false);
    passTo(4 * STALL_MS);
    expect([answer.destroyed, stalls, ticks.size]).toEqual([true, 1, 0]);
  });

  test('is forgotten where the client leaves first, or has left', () => {
    breakOff();
    answer.destroy();
    expect(ticks.size).toBe(0);
    breakOff();
    expect(ticks.size).toBe(0);
  });
});
