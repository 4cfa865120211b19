// Options that several commands share, and how flags and environment variables become values of the
// configuration: each is laid over the file's value and checked by the same schema.

import { Option, type Command } from 'commander';
import { parse } from 'yaml';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { Path } from '../../shared/config/schema-walk.ts';
import { UsageError } from './usage-error.ts';

/** An option whose value goes to `path` as it stands. */
export interface Setting {
  readonly flags: string;
  readonly env: string;
  readonly path: Path;
  /** A number where it is written in digits. */
  readonly count?: boolean;
  readonly about: string;
}

export const COMMON: readonly Setting[] = [
  {
    flags: '--region <name>',
    env: 'SPILLWAY_REGION',
    path: ['region'],
    about: 'region that this process belongs to',
  },
  {
    flags: '--log-level <level>',
    env: 'SPILLWAY_LOG_LEVEL',
    path: ['log', 'level'],
    about: 'debug, info, warn or error',
  },
  {
    flags: '--log-format <format>',
    env: 'SPILLWAY_LOG_FORMAT',
    path: ['log', 'format'],
    about: 'auto, json or readable',
  },
];

export function addSettings(command: Command, settings: readonly Setting[]): void {
  for (const { flags, env, about } of settings) {
    command.addOption(new Option(flags, about).env(env));
  }
}

/** Repeated, or separated by commas: the form of an environment variable. */
export function listOption(flags: string, env: string, about: string): Option {
  return new Option(flags, about)
    .env(env)
    .argParser((text: string, before: readonly string[] | undefined) => [
      ...(before ?? []),
      ...text.split(',').filter((part) => part !== ''),
    ]);
}

export function configOption(): Option {
  return new Option('-f, --config <file>', 'fleet.yaml with everything else').env(
    'SPILLWAY_CONFIG',
  );
}

export function setOption(): Option {
  return new Option(
    '--set <path=value>',
    'any other field of fleet.yaml, e.g. router.routing.holdMs=80 (repeatable)',
  ).argParser((text: string, before: readonly string[] | undefined) => [...(before ?? []), text]);
}

/** `--pool` if it was given as a flag, `SPILLWAY_POOL` if through the environment. */
export function sourceOf(command: Command, attribute: string): string {
  const option = command.options.find((candidate) => candidate.attributeName() === attribute);
  const fromEnvironment = command.getOptionValueSource(attribute) === 'env';
  return (fromEnvironment ? option?.envVar : option?.long) ?? attribute;
}

export function settingOverlays(command: Command, settings: readonly Setting[]): Overlay[] {
  return settings.flatMap(({ flags, path, count = false }) => {
    const attribute = new Option(flags).attributeName();
    const text: unknown = command.getOptionValue(attribute);
    const value = count && /^\d+$/.test(String(text)) ? Number(text) : text;
    return value === undefined ? [] : [{ path, value, source: sourceOf(command, attribute) }];
  });
}

/** `--set a.b=1`: the value is written as in YAML. A message names the path, never the value: it may be secret. */
export function setOverlays(assignments: readonly string[]): Overlay[] {
  return assignments.map((text) => {
    const equals = text.indexOf('=');
    if (equals <= 0) throw new UsageError(`--set ${text}: write it as path=value`);
    const name = text.slice(0, equals);
    const path = name.split('.').map((step) => (/^\d+$/.test(step) ? Number(step) : step));
    return { path, value: yamlValue(name, text.slice(equals + 1)), source: `--set ${name}` };
  });
}

function yamlValue(name: string, text: string): unknown {
  try {
    return parse(text) as unknown;
  } catch (cause) {
    throw new UsageError(`--set ${name}: the value is not YAML`, { cause });
  }
}
