// The last bytes of an answer leave after its request is over: nothing waits for them any more, and a client that never
// takes them would keep them, and a connection, for ever. They have a fixed time from when the answer was ended; one that
// waits behind another on its connection is not begun with before its turn.
//
// An answer that failed in the middle is not ended but broken off (`reply.ts`), so that no client takes it for whole. Not at
// once: libraries drop what they have not handed on when their connection breaks, the error event too.

import type { ServerResponse } from 'node:http';
import type { Clock } from '../../shared/runtime/clock.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { Deadlines } from './deadlines.ts';

/** For a client to read the error event that its connection is cut behind, ms. */
const READ_ERROR_MS = 500;

export interface LastBytesRule {
  /** For all that is left, ms. */
  stallMs(): number;
  /** A connection was cut. */
  cut(): void;
}

export class LastBytes {
  private readonly clock: Clock;
  private readonly rule: LastBytesRule;
  private readonly deadlines: Deadlines;

  constructor({ clock, timers }: { clock: Clock; timers: Timers }, rule: LastBytesRule) {
    this.clock = clock;
    this.rule = rule;
    this.deadlines = new Deadlines(clock, timers);
  }

  /** To be called before anything is written. */
  watch(response: ServerResponse): void {
    // Comes when the answer has been ended and it is its turn on the connection.
    response.once('prefinish', () => {
      if ((response.socket?.writableLength ?? 0) > 0) this.await(response);
    });
  }

  /** Cuts the connection of an answer that has said its last, once that has left and been read; a client may go before. */
  readonly breakOff = (response: ServerResponse): void => {
    if (response.closed) return;
    let sinceMs = this.clock.nowMs();
    let leftMs: number | null = null;
    const watched = {
      check: (nowMs: number) => {
        // Before its turn on the connection nothing of it can leave.
        if (response.socket === null) return void (sinceMs = nowMs);
        if (response.writableLength === 0) leftMs ??= nowMs;
        const stalled = leftMs === null && nowMs - sinceMs >= this.rule.stallMs();
        if (stalled) this.rule.cut();
        if (stalled || (leftMs !== null && nowMs - leftMs >= READ_ERROR_MS)) response.destroy();
      },
    };
    this.deadlines.add(watched);
    response.once('close', () => this.deadlines.remove(watched));
  };

  private await(response: ServerResponse): void {
    const sinceMs = this.clock.nowMs();
    const watched = {
      check: (nowMs: number) => {
        if (nowMs - sinceMs < this.rule.stallMs()) return;
        this.rule.cut();
        response.destroy();
      },
    };
    this.deadlines.add(watched);
    const over = (): void => this.deadlines.remove(watched);
    response.once('finish', over);
    response.once('close', over);
  }
}
