// `--engine-pid-file`, `--engine-unit`, `--engine-log`: what tells of an engine's process beside its port; one for each
// engine, in their order. An empty one stands for none.

import type { Option } from 'commander';
import { listOption } from './options.ts';
import { UsageError } from './usage-error.ts';

export interface EvidenceFlags {
  readonly enginePidFile?: readonly string[];
  readonly engineUnit?: readonly string[];
  readonly engineLog?: readonly string[];
}

export interface EngineEvidence {
  readonly pidFile: string | null;
  readonly unit: string | null;
  readonly log: string | null;
}

export function evidenceOptions(): readonly Option[] {
  return [
    listOption(
      '--engine-pid-file <path...>',
      'SPILLWAY_ENGINE_PID_FILES',
      "file with the engine's process id: tells loading from dead",
    ),
    listOption(
      '--engine-unit <name...>',
      'SPILLWAY_ENGINE_UNITS',
      "the engine's systemd unit: tells loading from dead",
    ),
    listOption(
      '--engine-log <path...>',
      'SPILLWAY_ENGINE_LOGS',
      'file that the engine logs to: tells how far its start has come',
    ),
  ];
}

/** Of each of `engines`; throws a usage error where their numbers differ. */
export function evidenceOf(flags: EvidenceFlags, engines: number): readonly EngineEvidence[] {
  const { enginePidFile, engineUnit, engineLog } = flags;
  const given = [
    ['--engine-pid-file', enginePidFile],
    ['--engine-unit', engineUnit],
    ['--engine-log', engineLog],
  ] as const;
  for (const [flag, values] of given) {
    if (values === undefined || values.length === engines) continue;
    throw new UsageError(
      engines === 0
        ? `${flag} needs --engine`
        : `${engines} × --engine and ${values.length} × ${flag}: give one for each --engine, in the same order`,
    );
  }
  return Array.from({ length: engines }, (_, at) => ({
    pidFile: textOf(enginePidFile?.[at]),
    unit: textOf(engineUnit?.[at]),
    log: textOf(engineLog?.[at]),
  }));
}

function textOf(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text;
}
