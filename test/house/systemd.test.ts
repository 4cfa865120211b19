// The units against the command line, against each other, and against the times that a drain takes.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { fleetSchema } from '../../shared/config/schema.ts';
import { check, commandNamed } from './command-line.ts';

const FOLDER = join(import.meta.dirname, '../../deploy/systemd');
const SECRETS = ['SPILLWAY_LINK_SECRET', 'SPILLWAY_ENGINE_API_KEY'];
const ROUTER = 'spillway-router.service';
const GLOBAL = 'spillway-global.service';
const AGENT = 'spillway-agent@.service';
const ENGINE = 'vllm@.service';

/** Settings by name, in their sections; a name may stand several times. */
function unit(file: string): { readonly text: string; readonly of: (name: string) => string[] } {
  const text = readFileSync(join(FOLDER, file), 'utf8');
  const settings = text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#') && !line.startsWith('['));
  return {
    text,
    of: (name) =>
      settings
        .filter((line) => line.startsWith(`${name}=`))
        .map((line) => line.slice(name.length + 1)),
  };
}

it('there are units for routers of both tiers, agents, and an engine to stand beside', () => {
  expect(readdirSync(FOLDER).toSorted()).toEqual([AGENT, GLOBAL, ROUTER, ENGINE].toSorted());
});

describe.each([
  [ROUTER, 'router'],
  [GLOBAL, 'global'],
  [AGENT, 'agent'],
])('%s', (file, name) => {
  const { text, of } = unit(file);

  it('runs commands that exist', () => {
    const lines = Array.from(text.matchAll(/^Exec\w+=\/opt\/spillway\/bin\/spillway (.+)$/gm));
    expect(lines.length).toBeGreaterThan(0);
    for (const [, words] of lines) check((words ?? '').split(' '));
    expect(lines.at(-1)?.[1]).toMatch(new RegExp(`^${name} `));
  });

  it('names environment variables that its command reads', () => {
    const named = Array.from(text.matchAll(/SPILLWAY_[A-Z_]+/g), ([variable]) => variable);
    const known = commandNamed(name).options.flatMap((option) => option.envVar ?? []);
    expect(named.filter((variable) => ![...SECRETS, ...known].includes(variable))).toEqual([]);
  });

  it('has no privileges, writes nothing, and may compile JavaScript', () => {
    expect(of('User')).toEqual(['spillway']);
    expect(of('CapabilityBoundingSet')).toEqual(['']);
    expect(of('SystemCallFilter')).toEqual(['@system-service']);
    for (const setting of ['NoNewPrivileges', 'ProtectHome', 'PrivateTmp', 'RestrictNamespaces']) {
      expect([setting, ...of(setting)]).toEqual([setting, 'yes']);
    }
    expect(of('ProtectSystem')).toEqual(['strict']);
    expect(of('MemoryDenyWriteExecute')).toEqual([]);
  });

  it('is started again for ever', () => {
    expect(of('Restart')).toEqual(['on-failure']);
    expect(of('StartLimitIntervalSec')).toEqual(['0']);
  });
});

describe('an agent', () => {
  const { of } = unit(AGENT);

  it('sees processes and devices, which a router has no need of', () => {
    for (const setting of ['PrivateDevices', 'ProtectProc']) {
      expect(of(setting)).toEqual([]);
      expect(unit(ROUTER).of(setting)).toHaveLength(1);
    }
  });

  it('looks at the unit of its engine, ends before it, and does not end with it', () => {
    const engine = ENGINE.replace('@', '@%i');
    expect(of('Environment')).toEqual([`SPILLWAY_ENGINE_UNITS=${engine}`]);
    expect(of('After')[0]?.split(' ')).toContain(engine);
    for (const bond of ['Requires', 'BindsTo', 'PartOf']) expect(of(bond)).toEqual([]);
  });
});

describe('time to stop', () => {
  const { acceptMs, drainMs } = fleetSchema.parse({}).router.shutdown;
  const stopS = (file: string): number => Number(unit(file).of('TimeoutStopSec')[0]);

  it('of a router covers accepting and the whole drain', () => {
    expect(stopS(ROUTER) * 1_000).toBeGreaterThan(acceptMs + drainMs);
  });

  it('of a global router too', () => {
    const shutdown = fleetSchema.parse({ global: {} }).global?.shutdown;
    expect(stopS(GLOBAL) * 1_000).toBeGreaterThan(
      (shutdown?.acceptMs ?? 0) + (shutdown?.drainMs ?? 0),
    );
  });

  it('of an engine covers what it may finish, and that is as long as a router drains', () => {
    const drainS = Number(/--shutdown-timeout (\d+)/.exec(unit(ENGINE).text)?.[1]);
    expect(drainS * 1_000).toBeGreaterThanOrEqual(drainMs);
    expect(stopS(ENGINE)).toBeGreaterThan(drainS);
  });
});
