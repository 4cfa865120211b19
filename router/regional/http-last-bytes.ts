// The last bytes of an answer leave after its request is over: nothing waits for them any more, and a client that never
// takes them would keep them, and a connection, for ever. They have a fixed time from when the answer was ended; one that
// waits behind another on its connection is not begun with before its turn.

import type { ServerResponse } from 'node:http';
import type { Clock } from '../../shared/runtime/clock.ts';
import type { Timers } from '../../shared/runtime/timers.ts';
import { Deadlines } from './deadlines.ts';

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
