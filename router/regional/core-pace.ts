// How often agents may report, told again when their number has changed much.
//
// The welcome names an interval for as many agents as are linked then. A thousand that link one after
// the other would else keep what the first fifty were told, and report four times as often together
// as a router means to hear; and those of a region that shrank would stay slow.

import { reportIntervalMs } from '../policy/report-interval.ts';
import type { RegionalState } from './core-state.ts';

/** An interval is told again when it is so many times what was told, or less than one in so many. */
const MUCH = 1.25;

export function tellPace(state: RegionalState): void {
  const intervalMs = reportIntervalMs(state.settings.minReportIntervalMs, state.links.size);
  for (const link of state.links.values()) {
    if (intervalMs === link.toldIntervalMs) continue;
    const ratio = intervalMs / link.toldIntervalMs;
    if (ratio < MUCH && ratio > 1 / MUCH) continue;
    link.toldIntervalMs = intervalMs;
    const message = { kind: 'pace', minReportIntervalMs: intervalMs } as const;
    state.emit({ kind: 'send', link: link.id, message });
  }
}
