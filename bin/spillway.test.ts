// The command as a person types it: a process of its own each time.

import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildProgram, softwareVersion } from './program.ts';

const SPILLWAY = join(import.meta.dirname, 'spillway');
const EXAMPLES = join(import.meta.dirname, '../docs/examples');
const ROUTER_HEAP = [
  '--no-memory-reducer',
  '--heap-growing-percent=50',
  '--external-memory-accounted-in-global-limit',
];

let folder = '';
beforeAll(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'spillway-cli-')));
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Spawned {
  readonly env?: Readonly<Record<string, string>>;
  readonly program?: string;
}

function spillway(words: readonly string[], { env = {}, program = SPILLWAY }: Spawned = {}) {
  const { status, stdout, stderr } = spawnSync(program, words, {
    cwd: folder,
    encoding: 'utf8',
    timeout: 20_000,
    env: { PATH: process.env['PATH'], ...env },
  });
  return { status, stdout, stderr };
}

function script(name: string, body: string): void {
  writeFileSync(join(folder, name), `#!/bin/sh\n${body}\n`);
  chmodSync(join(folder, name), 0o755);
}

describe('help', () => {
  const commands = buildProgram().commands;

  it('names every command, with examples, without starting anything', () => {
    const { status, stdout } = spillway(['--help']);
    expect(status).toBe(0);
    expect(stdout).toContain('Examples:');
    for (const command of commands) expect(stdout).toContain(command.name());
  });

  it.each(commands.map((command) => command.name()))('of %s has examples', (name) => {
    let text = '';
    const command = commands.find((candidate) => candidate.name() === name);
    command?.configureOutput({ writeOut: (piece) => (text += piece) }).outputHelp();
    expect(text).toContain('Examples:\n  $ ');
    expect(command?.description()).not.toBe('');
  });
});

describe('bad input', () => {
  it.each([
    [['demo', '--prot', '1'], /^spillway demo: unknown option '--prot' \(Did you mean --port\?\)/],
    [['rooter'], /^spillway: unknown command 'rooter' \(Did you mean router\?\)/],
    [['demo', '--port', '99999'], /^spillway demo: --port 99999: must be a whole number/],
    [['demo', '--replicas', 'many'], /^spillway demo: --replicas many: must be a whole number/],
    [['demo', 'now'], /^spillway demo: too many arguments/],
    [['agent'], /^spillway agent: which engine\?/],
    [
      ['agent', '--engine', 'http://127.0.0.1:1/v1'],
      /^spillway agent: --engine: must have no path/,
    ],
    [
      ['agent', '--engine', 'http://127.0.0.1:1', '--router', 'http://127.0.0.1:2'],
      /^spillway agent: --router: must start with ws:\/\/ or wss:\/\//,
    ],
    [
      ['agent', '--engine', 'http://a:1', '--advertise', 'http://b:1', '--advertise', 'http://c:1'],
      /^spillway agent: 1 × --engine and 2 × --advertise/,
    ],
    [
      ['agent', '--engine', 'http://127.0.0.1:1', '--engine-unit', '/etc/x'],
      /^spillway agent: --engine: unit: must be the name of a systemd unit/,
    ],
    [['router', '--listen', '0.0.0.0:0'], /^spillway router: --listen: is reachable/],
    [['router', '--listen', 'nowhere'], /^spillway router: --listen: must be host:port/],
    [
      ['router', '--set', 'router.routing.holdMs=0'],
      /--set router\.routing\.holdMs: must be at least 1 ms/,
    ],
    [
      ['up', '--engine', 'http://127.0.0.1:1', '--port', '0', '--set', 'router.clients.listen=1'],
      /^spillway up: --set router\.clients\.listen: must be a string/,
    ],
    [['router', '--set', 'pools.0.id=['], /--set pools\.0\.id: the value is not YAML/],
    [['router', '--set', 'pools.0.id=a b'], /--set pools\.0\.id: must be 1 to 200 printable/],
    [['router', '--set', 'router.rooting.holdMs=9'], /unknown key; did you mean "routing"/],
    [['router', '--config', 'absent.yaml'], /^spillway router: absent\.yaml: cannot be read/],
    [['up'], /^spillway up: which engine\?/],
    [['up', '--engine', 'http://127.0.0.1:1/v1'], /^spillway up: .*ends in \/v1/],
    [['up', '--port', 'x', '--engine', 'http://127.0.0.1:1'], /^spillway up: --port x: must be/],
    [['engine-sim', '--profile', 'x'], /^spillway engine-sim: --profile: no profile x/],
    [['validate'], /^spillway validate: required option '-f, --file <file>' not specified/],
  ])('%j is told in one line', (words, message) => {
    const { status, stdout, stderr } = spillway(words);
    expect(stderr).toMatch(message);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(stdout).toBe('');
    expect(status).toBe(1);
  });

  it('without a command, shows the help and fails', () => {
    const { status, stderr } = spillway([]);
    expect(status).toBe(1);
    expect(stderr).toContain('Usage: spillway');
  });
});

describe('environment variables', () => {
  it('stand for flags, and their problems name them', () => {
    const { stderr } = spillway(['agent'], {
      env: { SPILLWAY_ENGINES: 'http://127.0.0.1:1,http://127.0.0.1:2/x' },
    });
    expect(stderr).toMatch(/^spillway agent: SPILLWAY_ENGINES: must have no path/);
  });

  it('lose against flags', () => {
    const { stderr } = spillway(['router', '--listen', 'from-flag'], {
      env: { SPILLWAY_LISTEN: 'from-env' },
    });
    expect(stderr).toMatch(/--listen: must be host:port/);
  });
});

describe('validate', () => {
  it('says that a good file is good', () => {
    const { status, stdout } = spillway(['validate', '-f', join(EXAMPLES, 'laptop.yaml')]);
    expect(stdout).toMatch(/laptop\.yaml: good \(1 pools, 0 models, 1 engines\)/);
    expect(status).toBe(0);
  });

  it('takes the secrets that router and agent would take from the environment', () => {
    const links = 'router:\n  links: {listen: "0.0.0.0:8081"}\n';
    const agent = 'agent:\n  engines: [{url: "http://a:1"}]\n  routers: ["ws://10.0.0.1:1"]\n';
    writeFileSync(join(folder, 'router-only.yaml'), links);
    writeFileSync(join(folder, 'both.yaml'), links + agent);
    const env = { SPILLWAY_LINK_SECRET: 'a-secret-of-a-link' };
    for (const file of ['router-only.yaml', 'both.yaml']) {
      expect(spillway(['validate', '-f', file]).stderr).toContain('SPILLWAY_LINK_SECRET');
      expect(spillway(['validate', '-f', file], { env }).stderr).toBe('');
    }
    // Every role checks the whole file: what stops the router is the port, not the agent's part.
    const elsewhere = {
      ...env,
      SPILLWAY_LISTEN: '203.0.113.1:1',
      SPILLWAY_ACCESS: 'open',
      SPILLWAY_LINKS: '127.0.0.1:0',
      SPILLWAY_ADMIN: '127.0.0.1:0',
    };
    const { stderr } = spillway(['router', '--config', 'both.yaml'], { env: elsewhere });
    expect(stderr).toMatch(/203\.0\.113\.1:1 is no address of this machine/);
  });

  it('lists every problem of a bad file', () => {
    writeFileSync(join(folder, 'bad.yaml'), 'regoin: a\npools: []\n');
    const { status, stderr } = spillway(['validate', '-f', 'bad.yaml']);
    expect(stderr.trimEnd().split('\n')).toEqual([
      'spillway validate: bad.yaml:1:1: regoin: unknown key; did you mean "region"?',
      'spillway validate: bad.yaml:2:8: pools: must have at least 1 element',
    ]);
    expect(status).toBe(1);
  });
});

describe('schema and version', () => {
  it('print what they promise', () => {
    const schema = JSON.parse(spillway(['schema']).stdout) as Record<string, unknown>;
    expect(schema['$schema']).toContain('2020-12');
    expect(spillway(['version']).stdout.trim()).toBe(softwareVersion());
    expect(spillway(['--version']).stdout.trim()).toBe(softwareVersion());
  });
});

describe('the script', () => {
  it('works through a chain of links, relative and absolute', () => {
    symlinkSync(SPILLWAY, join(folder, 'absolute'));
    symlinkSync('absolute', join(folder, 'relative'));
    const { status, stdout } = spillway(['version'], { program: join(folder, 'relative') });
    expect(stdout.trim()).toBe(softwareVersion());
    expect(status).toBe(0);
  });

  it('says which Node it needs where there is none of 24 or newer', () => {
    // A copy elsewhere has no Node of its own.
    writeFileSync(join(folder, 'copy'), readFileSync(SPILLWAY));
    chmodSync(join(folder, 'copy'), 0o755);
    script('node', 'echo v20.20.2');
    const path = { PATH: `${folder}:/bin:/usr/bin` };
    const { status, stderr } = spillway(['version'], { program: join(folder, 'copy'), env: path });
    expect(stderr).toMatch(/^spillway: needs Node 24 or newer \(found: v20\.20\.2\)/);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(status).toBe(69);
  });

  it("prefers the project's own Node to an older one on the path", () => {
    script('node', 'echo v20.20.2');
    const { status } = spillway(['version'], { env: { PATH: `${folder}:/bin:/usr/bin` } });
    expect(status).toBe(0);
    expect(dirname(SPILLWAY)).toContain('bin');
  });

  it.each([
    ['agent', 24, 8, []],
    ['router', 24, 32, ROUTER_HEAP],
    ['global', 24, 32, ROUTER_HEAP],
    ['router', 26, 32, ROUTER_HEAP.slice(0, -1)],
    ['engine-sim', 24, 32, ROUTER_HEAP.slice(0, -1)],
  ])('lays out the heap of %s, Node %i', (command, major, half, old) => {
    writeFileSync(join(folder, 'copy'), readFileSync(SPILLWAY));
    chmodSync(join(folder, 'copy'), 0o755);
    script(
      'node',
      `if [ "$1" = --version ]; then echo v${major}.1.0; else printf "%s\\n" "$@"; fi`,
    );
    const env = { PATH: `${folder}:/bin:/usr/bin` };
    const { stdout } = spillway([command], { program: join(folder, 'copy'), env });
    const young = [`--min-semi-space-size=${half}`, `--max-semi-space-size=${half}`];
    const flags = [...old, ...young, '--v8-pool-size=1'];
    expect(stdout.split('\n').slice(0, flags.length)).toEqual(flags);
    expect(stdout.trimEnd().split('\n').at(-1)).toBe(command);
  });
});
