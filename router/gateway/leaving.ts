// How a router leaves and comes back: out of its balancer while it still serves, and in the end for good.
//
//   mark(true)    not ready, connections end with their answers, whoever still comes is served
//   mark(false)   ready again; not once it ends
//   drain         not ready; `acceptMs` later new requests are refused; resolves when nothing is open or `drainMs` is over

import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { DrainState } from './drain-routes.ts';

export interface DrainOptions {
  /** ms after turning not ready in which new requests are still accepted: balancers notice late. */
  readonly acceptMs: number;
  /** ms after that in which open requests may end. */
  readonly drainMs: number;
}

export interface Leaver {
  /** New arrivals are refused from here on. */
  refuseNew(): void;
  /** Runs `task` once when nothing is open. */
  whenIdle(task: () => void): void;
}

export class Leaving {
  private readonly runtime: RoleRuntime;
  /** Since when it is not ready because it was told so; null while it stays. */
  private sinceMs: number | null = null;
  /** It does not come back. */
  private ending = false;

  constructor(runtime: RoleRuntime) {
    this.runtime = runtime;
  }

  get now(): boolean {
    return this.sinceMs !== null;
  }

  /** False where it is too late for it. */
  mark(on: boolean): boolean {
    if (!on && this.ending) return false;
    if (on === this.now) return true;
    this.sinceMs = on ? this.runtime.clock.nowMs() : null;
    this.runtime.log.info({}, on ? 'drain_begun' : 'drain_undone');
    return true;
  }

  state(openRequests: number): DrainState {
    return { draining: this.now, drained: this.now && openRequests === 0, open: openRequests };
  }

  /** For good, with nothing said. */
  end(): void {
    this.ending = true;
    this.sinceMs ??= this.runtime.clock.nowMs();
  }

  async drain({ acceptMs, drainMs }: DrainOptions, leaver: Leaver): Promise<void> {
    this.end();
    const { timers, clock } = this.runtime;
    const nowMs = clock.nowMs();
    // Balancers have noticed since then.
    const waitMs = (this.sinceMs ?? nowMs) + acceptMs - nowMs;
    if (waitMs > 0) await new Promise<void>((resolve) => timers.after(waitMs, resolve));
    leaver.refuseNew();
    await new Promise<void>((resolve) => {
      const cancel = timers.after(drainMs, resolve);
      leaver.whenIdle(() => {
        cancel();
        resolve();
      });
    });
  }
}
