import { describe, expect, test } from 'vitest';
import type { LoadProgress } from '../../shared/model/report.ts';
import { combineEvidence, LOG_FRESH_MS, type Sights, type UnitSight } from './process-evidence.ts';

const NOTHING: Sights = { port: 'refuses', pidFile: null, list: null, unit: null, log: null };

const LIVES = { pid: 7, lives: true };
const GONE = { pid: 7, lives: false };
const NO_FILE = { pid: null, lives: false };
const LISTED = { state: 'alive', pid: 9 } as const;
const UNLISTED = { state: 'unknown', pid: null } as const;
const VANISHED = { state: 'absent', pid: null } as const;

function unit(activeState: string, subState: string, more: Partial<UnitSight> = {}): UnitSight {
  return { activeState, subState, mainPid: 5, mainLives: true, restarts: 0, ...more };
}

const RUNNING = unit('active', 'running');
const KILLED = unit('active', 'running', { mainLives: false });
const FAILED = unit('failed', 'failed', { mainPid: null, mainLives: false });
const RESTARTING = unit('activating', 'auto-restart', { mainPid: null, mainLives: false });

function log(stage: string, ageMs = 1_000, ratio: number | null = null): Sights['log'] {
  return { progress: { stage, ratio } satisfies LoadProgress, ageMs };
}

describe('an engine’s process', () => {
  const cases: [string, Partial<Sights>, 'alive' | 'absent' | 'unknown'][] = [
    ['is unknown where nothing looks', {}, 'unknown'],
    // One source.
    ['lives when its pid file’s process does', { pidFile: LIVES }, 'alive'],
    ['is gone when its pid file’s process is', { pidFile: GONE }, 'absent'],
    ['is gone when there is no pid file', { pidFile: NO_FILE }, 'absent'],
    ['lives when a process names its port', { list: LISTED }, 'alive'],
    ['is unknown when no list ever had it', { list: UNLISTED }, 'unknown'],
    ['is gone when a list had it and none has', { list: VANISHED }, 'absent'],
    ['lives when its unit runs', { unit: RUNNING }, 'alive'],
    ['lives while its unit starts', { unit: unit('activating', 'start') }, 'alive'],
    [
      'lives while its unit prepares the start',
      { unit: unit('activating', 'start-pre', { mainPid: null }) },
      'alive',
    ],
    ['lives while its unit stops', { unit: unit('deactivating', 'stop-sigterm') }, 'alive'],
    [
      'lives in a unit that has no main process to look at',
      { unit: unit('active', 'exited', { mainPid: null }) },
      'alive',
    ],
    [
      'is gone when its unit’s main process is, whatever systemd has noticed',
      { unit: KILLED },
      'absent',
    ],
    ['is gone when its unit failed', { unit: FAILED }, 'absent'],
    [
      'is gone when its unit is not started',
      { unit: unit('inactive', 'dead', { mainPid: null }) },
      'absent',
    ],
    ['is gone while its unit waits to start it again', { unit: RESTARTING }, 'absent'],
    [
      'is unknown in a state that systemd has not had so far',
      { unit: unit('maintenance', 'x') },
      'unknown',
    ],
    ['lives when its log has just told of a start', { log: log('weights') }, 'alive'],
    ['is gone when its log ends in an error', { log: log('failed') }, 'absent'],
    [
      'is unknown when its log has been silent for long',
      { log: log('weights', LOG_FRESH_MS + 1) },
      'unknown',
    ],
    [
      'is unknown when its log says that it serves and the port refuses',
      { log: log('serving') },
      'unknown',
    ],
    // Conflicts.
    [
      'lives when its port answers, although no pid file says so',
      { port: 'answers', pidFile: NO_FILE },
      'alive',
    ],
    [
      'lives when its port answers, although its unit failed',
      { port: 'answers', unit: FAILED },
      'alive',
    ],
    [
      'lives when its port answers, although its log says error',
      { port: 'answers', log: log('failed') },
      'alive',
    ],
    [
      'lives when a process names its port, although the pid file is stale',
      { list: LISTED, pidFile: GONE },
      'alive',
    ],
    [
      'lives when a process names its port, although its unit failed: started by hand',
      { list: LISTED, unit: FAILED },
      'alive',
    ],
    [
      'lives when its pid file’s process does, although its unit failed',
      { pidFile: LIVES, unit: FAILED },
      'alive',
    ],
    [
      'lives when its unit runs, although the pid file is of the last start',
      { unit: RUNNING, pidFile: GONE },
      'alive',
    ],
    [
      'is gone when the process that was listed is, although a wrapper’s unit runs',
      { list: VANISHED, unit: RUNNING },
      'absent',
    ],
    [
      'is gone when its unit failed, whatever its log told a moment ago',
      { unit: FAILED, log: log('weights') },
      'absent',
    ],
    [
      'lives when its unit runs, although its log says error: it is on its way out',
      { unit: RUNNING, log: log('failed') },
      'alive',
    ],
    [
      'is gone when its pid file says so, whatever its log told a moment ago',
      { pidFile: GONE, log: log('weights') },
      'absent',
    ],
    [
      'is told by its log where no list ever had it: a container',
      { list: UNLISTED, log: log('graphs') },
      'alive',
    ],
  ];
  test.each(cases)('%s', (_, sights, expected) => {
    expect(combineEvidence({ ...NOTHING, ...sights }).state).toBe(expected);
  });
});

describe('progress', () => {
  test('is the log’s while the engine is on its way', () => {
    const seen = combineEvidence({ ...NOTHING, pidFile: LIVES, log: log('weights', 5, 0.5) });
    expect(seen.progress).toEqual({ stage: 'weights', ratio: 0.5 });
  });

  test('is none once the port answers, nor of a process that is gone', () => {
    const told = log('weights', 5, 0.5);
    expect(combineEvidence({ ...NOTHING, port: 'answers', log: told }).progress).toBeNull();
    expect(combineEvidence({ ...NOTHING, pidFile: GONE, log: told }).progress).toBeNull();
  });
});

test('a process that is gone is not named', () => {
  expect(combineEvidence({ ...NOTHING, pidFile: GONE }).process).toBeNull();
  const killed = { ...NOTHING, unit: KILLED, list: LISTED };
  expect(combineEvidence(killed).process).toEqual({ source: 'list', pid: 9 });
});

test('the process is named by the most specific source, and restarts by the unit', () => {
  const all = {
    ...NOTHING,
    pidFile: LIVES,
    list: LISTED,
    unit: unit('active', 'running', { restarts: 4 }),
  };
  expect(combineEvidence(all)).toMatchObject({
    process: { source: 'pidFile', pid: 7 },
    restarts: 4,
  });
  expect(combineEvidence({ ...all, pidFile: null }).process).toEqual({ source: 'unit', pid: 5 });
  expect(combineEvidence({ ...NOTHING, list: LISTED })).toMatchObject({
    process: { source: 'list', pid: 9 },
    restarts: null,
  });
});
