// A router that takes changes of its file while it runs, and says in the log what became of each.

import type { Overlay } from '../../shared/config/diagnostics.ts';
import { parseFleet } from '../../shared/config/load.ts';
import { startReload, type Reloader } from '../../shared/config/reload.ts';
import type { ConfigRole } from '../../shared/config/restart.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import type { ConfigState, ConfigView } from '../../shared/config/state.ts';
import type { Logger } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';

export interface Reloading {
  readonly role: ConfigRole;
  readonly file: string;
  /** What the process was started with, and the text that it was made from. */
  readonly config: FleetConfig;
  readonly text: string;
  /** What flags and environment lay over a text. */
  readonly overlaysFor: (text: string) => readonly Overlay[];
  /** Swaps a new generation in; throws when it cannot. */
  readonly apply: (next: FleetConfig) => unknown;
  readonly state: ConfigState;
  readonly log: Logger;
}

export function startReloading(reloading: Reloading): Reloader {
  const { role, file, config, text: before, overlaysFor, apply, state, log } = reloading;
  return startReload({
    ...{ file, role, apply, state },
    running: config,
    text: before,
    parse: (text) => {
      const overlays = overlaysFor(text);
      return parseFleet({ file, text, environment: process.env, overlays });
    },
    told: (view) => tell(view, log),
    timers: systemTimers,
  });
}

function tell(view: ConfigView, log: Logger): void {
  const { generation, lastReloadOk, lastError, restartFields } = view;
  if (!lastReloadOk) {
    log.error(
      { generation, problems: lastError },
      'configuration refused: the last good one stays',
    );
  } else if (restartFields.length > 0) {
    log.warn({ generation, restartFields }, 'configuration taken; these fields need a restart');
  } else log.info({ generation }, 'configuration taken');
}
