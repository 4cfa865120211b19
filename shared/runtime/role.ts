// What every role takes from its process: clocks, timers, randomness, a logger. A test hands in its own.

import type { ConfigView } from '../config/state.ts';
import type { Random } from '../lib/random.ts';
import type { Clock } from './clock.ts';
import type { Logger } from './log.ts';
import type { Timers } from './timers.ts';

export interface RoleRuntime {
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: Logger;
  /** What to say of the configuration; absent where the process has no configuration file. */
  readonly configView?: () => ConfigView;
}
