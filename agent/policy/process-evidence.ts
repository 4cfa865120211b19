// Whether an engine's process lives, from everything that is seen of it besides its port. The most specific source
// that can tell decides; a wrong guess in either direction is worse than none.
//
//   1 the port answers                                       alive, whatever else is said
//   2 a listed process names the port, or the pid file's process lives        alive
//   3 a process that a list had is gone, and no list has another              absent
//   4 the unit has a main process, or is on its way to or from one            alive
//     the unit failed, is inactive, or waits to start it again                absent
//   5 the pid file names no process, or one that is gone                      absent
//   6 the log ends in a fatal error                                           absent
//     the log has told of a start within `logFreshMs`                         alive
//   7                                                                         unknown
//
// A pid file that said absent while the port answered is wrong (another folder, another namespace) and is not
// believed until it has named a living process.

import type { LoadProgress } from '../../shared/model/report.ts';
import type { EngineProcess, ProcessEvidence } from '../events.ts';

export interface PidFileSight {
  /** What the file names; null without a file, or where it names none. */
  readonly pid: number | null;
  readonly lives: boolean;
}

/** A process list: `absent` only where an earlier list had the engine. */
export interface ListSight {
  readonly state: ProcessEvidence['state'];
  readonly pid: number | null;
}

/** What systemd says of the engine's unit. */
export interface UnitSight {
  readonly activeState: string;
  readonly subState: string;
  /** Null where there is none. */
  readonly mainPid: number | null;
  /** The main process, looked at itself. */
  readonly mainLives: boolean;
  readonly restarts: number | null;
}

export interface LogSight {
  readonly progress: LoadProgress | null;
  /** Since the log last told of the start. */
  readonly ageMs: number;
}

/** Null is a source that is not there, or could not be read. */
export interface Sights {
  readonly port: 'answers' | 'refuses';
  readonly pidFile: PidFileSight | null;
  readonly list: ListSight | null;
  readonly unit: UnitSight | null;
  readonly log: LogSight | null;
}

/** Weights of hundreds of GB load without a word for minutes. */
export const LOG_FRESH_MS = 300_000;

export function combineEvidence(sights: Sights): ProcessEvidence {
  const { unit, log, port } = sights;
  const state = port === 'answers' ? 'alive' : stateOf(sights);
  const tells = state === 'alive' && port === 'refuses';
  return {
    state,
    progress: tells ? (log?.progress ?? null) : null,
    process: processOf(sights),
    restarts: unit?.restarts ?? null,
  };
}

function stateOf({ pidFile, list, unit, log }: Sights): ProcessEvidence['state'] {
  if (list?.state === 'alive' || pidFile?.lives === true) return 'alive';
  if (list?.state === 'absent') return 'absent';
  const byUnit = unit === null ? 'unknown' : unitState(unit);
  if (byUnit !== 'unknown') return byUnit;
  if (pidFile !== null) return 'absent';
  return log === null ? 'unknown' : logState(log);
}

/** Table of `systemctl show`: a unit between two lives of its process is `activating (auto-restart)`. */
function unitState(unit: UnitSight): ProcessEvidence['state'] {
  const { activeState, subState, mainPid, mainLives } = unit;
  switch (activeState) {
    case 'active':
    case 'reloading':
    case 'deactivating':
      // Without a main process (oneshot, forking without a file) the unit's word is all there is.
      return mainPid === null || mainLives ? 'alive' : 'absent';
    case 'activating':
      if (subState.startsWith('auto-restart')) return 'absent';
      return mainPid === null || mainLives ? 'alive' : 'absent';
    case 'failed':
    case 'inactive':
      return 'absent';
    default:
      return 'unknown';
  }
}

function logState({ progress, ageMs }: LogSight): ProcessEvidence['state'] {
  if (progress === null || progress.stage === 'serving') return 'unknown';
  if (progress.stage === 'failed') return 'absent';
  return ageMs <= LOG_FRESH_MS ? 'alive' : 'unknown';
}

/** One that lives; always from the same source where it can be, so that two looks compare. */
function processOf({ pidFile, unit, list }: Sights): EngineProcess | null {
  if (pidFile !== null && pidFile.pid !== null && pidFile.lives)
    return { source: 'pidFile', pid: pidFile.pid };
  if (unit !== null && unit.mainPid !== null && unit.mainLives)
    return { source: 'unit', pid: unit.mainPid };
  if (list !== null && list.pid !== null) return { source: 'list', pid: list.pid };
  return null;
}
