// `--kv-events` and `--kv-events-replay`: one for each engine, in their order.

import type { Option } from 'commander';
import { listOption } from './options.ts';
import { UsageError } from './usage-error.ts';

export interface KvEventsFlags {
  readonly kvEvents?: readonly string[];
  readonly kvEventsReplay?: readonly string[];
}

export function kvEventsOptions(): readonly Option[] {
  return [
    listOption(
      '--kv-events <address...>',
      'SPILLWAY_KV_EVENTS',
      'where the engine publishes KV events, e.g. tcp://127.0.0.1:5557',
    ),
    listOption(
      '--kv-events-replay <address...>',
      'SPILLWAY_KV_EVENTS_REPLAY',
      'where it replays them',
    ),
  ];
}

/** The `kvEvents` of each of `engines`. */
export function kvEventsOf(
  flags: KvEventsFlags,
  engines: number,
): readonly ({ readonly endpoint: string; readonly replay: string | null } | null)[] {
  const { kvEvents, kvEventsReplay } = flags;
  if (kvEvents === undefined && kvEventsReplay !== undefined) {
    throw new UsageError('--kv-events-replay needs --kv-events');
  }
  const given = [
    ['--kv-events', kvEvents],
    ['--kv-events-replay', kvEventsReplay],
  ] as const;
  for (const [flag, values] of given) {
    if (values === undefined || values.length === engines) continue;
    throw new UsageError(
      `${engines} × --engine and ${values.length} × ${flag}: give one ${flag} for each --engine, in the same order`,
    );
  }
  return Array.from({ length: engines }, (_, at) => {
    const endpoint = kvEvents?.[at];
    return endpoint === undefined ? null : { endpoint, replay: kvEventsReplay?.[at] ?? null };
  });
}
