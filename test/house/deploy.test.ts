// No container engine is at hand, so what is made for one is held against the command line: every command, option,
// environment variable, port and file that they name must exist.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseListen } from '../../shared/config/address.ts';
import { loadFleet } from '../../shared/config/load.ts';
import { check, commandNamed } from './command-line.ts';

const ROOT = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

interface Service {
  readonly command: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly network_mode?: string;
  readonly stop_grace_period?: string;
  readonly build: { readonly dockerfile: string };
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
  readonly networks: {
    readonly fleet: { readonly ipam: { readonly config: readonly { readonly subnet: string }[] } };
  };
}

const compose = parse(read('docker-compose.yml'), { merge: true }) as Compose;
const dockerfile = read('deploy/docker/Dockerfile');
const exposed = /^EXPOSE (.*)$/m.exec(dockerfile)?.[1]?.split(' ') ?? [];
const fleet = loadFleet(
  join(ROOT, 'deploy/docker/fleet.yaml'),
  { SPILLWAY_LINK_SECRET: 'a-secret-of-a-link' },
  [],
);

/** Secrets are read from the environment by every role and are no option. */
const SECRETS = ['SPILLWAY_LINK_SECRET', 'SPILLWAY_ENGINE_API_KEY'];

function variablesOf(name: string): string[] {
  return commandNamed(name).options.flatMap((option) => option.envVar ?? []);
}

describe('docker-compose.yml', () => {
  it.each(Object.entries(compose.services))('%s runs a command that exists', (_, service) => {
    check(service.command);
    expect(existsSync(join(ROOT, service.build.dockerfile))).toBe(true);
    for (const variable of Object.keys(service.environment ?? {})) {
      expect([...SECRETS, ...variablesOf(service.command[0] ?? '')]).toContain(variable);
    }
  });

  it('publishes only ports that the router listens on, on loopback', () => {
    if (!fleet.ok) throw new Error(fleet.error);
    const { clients, links, admin } = fleet.config.router;
    const listened = [clients.listen, links.listen, admin?.listen ?? ''].map(
      (text) => parseListen(text)?.port,
    );
    for (const mapping of compose.services['router']?.ports ?? []) {
      const [host, , inside] = mapping.split(':');
      expect(host).toBe('127.0.0.1');
      expect(listened).toContain(Number(inside));
      expect(exposed).toContain(inside);
    }
    for (const port of listened) expect(exposed).toContain(String(port));
  });

  it('mounts a configuration that is valid and stands where the command looks', () => {
    expect(fleet.ok ? '' : fleet.error).toBe('');
    const router = compose.services['router'];
    const [source, target] = router?.volumes?.[0]?.split(':') ?? [];
    const config = check(router?.command ?? [])['config'];
    expect(config).toBe(`${target ?? ''}/fleet.yaml`);
    expect(existsSync(join(ROOT, source ?? '', 'fleet.yaml'))).toBe(true);
  });

  it('lets engines be advertised in its own network, beside which each agent answers', () => {
    if (!fleet.ok) throw new Error(fleet.error);
    const subnet = compose.networks.fleet.ipam.config[0]?.subnet;
    expect(fleet.config.pools[0]?.engineCidrs).toEqual([subnet]);
    for (const name of ['1', '2']) {
      const agent = compose.services[`agent-${name}`];
      expect(agent?.network_mode).toBe(`service:engine-${name}`);
      const flags = check(agent?.command ?? []);
      const engine = check(compose.services[`engine-${name}`]?.command ?? []);
      expect(flags['advertise']).toEqual([`http://engine-${name}:${String(engine['port'])}`]);
      expect(exposed).toContain(String(flags['listen']).split(':')[1]);
      const links = parseListen(fleet.config.router.links.listen);
      expect(flags['router']).toEqual([`ws://router:${links?.port ?? 0}`]);
    }
  });
});

describe('Dockerfile', () => {
  it('copies files that exist and starts the command line', () => {
    const copied = Array.from(dockerfile.matchAll(/^COPY (.+) \S+$/gm), (match) =>
      (match[1] ?? '').split(' '),
    ).flat();
    expect(copied).toContain('bin');
    for (const file of copied) expect(existsSync(join(ROOT, file)), file).toBe(true);
    expect(dockerfile).toContain('ENTRYPOINT ["/opt/spillway/bin/spillway"]');
  });

  it('has the Node that package.json asks for', () => {
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    const major = /^FROM node:(\d+)/m.exec(dockerfile)?.[1];
    expect(`>=${major ?? ''}`).toBe(engines.node);
  });
});

describe('a router', () => {
  it('is given the whole drain before it is killed', () => {
    if (!fleet.ok) throw new Error(fleet.error);
    const { acceptMs, drainMs } = fleet.config.router.shutdown;
    const graceS = Number(
      /^(\d+)s$/.exec(compose.services['router']?.stop_grace_period ?? '')?.[1],
    );
    expect(graceS * 1_000).toBeGreaterThan(acceptMs + drainMs);
  });
});
