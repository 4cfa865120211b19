import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AGENT_DEFAULTS, REGIONAL_DEFAULTS } from '../model/settings.ts';
import type { Overlay } from './diagnostics.ts';
import type { Environment } from './environment.ts';
import { loadFleet, parseFleet } from './load.ts';
import { fleetJsonSchema } from './schema.ts';
import { nodeAt } from './schema-walk.ts';

interface Extra {
  readonly environment?: Environment;
  readonly overlays?: readonly Overlay[];
}

function parse(text: string, { environment = {}, overlays = [] }: Extra = {}) {
  return parseFleet({ file: 'fleet.yaml', text, environment, overlays });
}

function errorOf(text: string, extra: Extra = {}): string {
  const result = parse(text, extra);
  return result.ok ? 'no error' : result.error;
}

describe('defaults', () => {
  it('are those of the cores', () => {
    const result = parse('agent: { engines: [{ url: http://127.0.0.1:8000 }] }');
    if (!result.ok) throw new Error(result.error);
    expect(result.config.router.routing).toEqual(REGIONAL_DEFAULTS);
    expect(result.config.agent?.settings).toEqual(AGENT_DEFAULTS);
    expect(result.config.pools.map((pool) => pool.id)).toEqual(['default']);
  });

  it('cannot be changed by whoever reads them', () => {
    const result = parse('region: a');
    expect(result.ok && Object.isFrozen(result.config.router.routing)).toBe(true);
  });

  it('lie inside their own bounds, and every number has a unit and a description', () => {
    const schema = fleetJsonSchema();
    const sections = [
      ['router', 'routing'],
      ['router', 'limits'],
      ['router', 'shutdown'],
      ['agent', 'settings'],
    ];
    for (const section of sections) {
      const keys = Object.keys(nodeAt(schema, section)?.properties ?? {});
      expect(keys.length).toBeGreaterThan(0);
      for (const key of keys) {
        const node = nodeAt(schema, [...section, key]);
        expect(node?.description, key).toBeTruthy();
        if (node?.type !== 'number' && node?.type !== 'integer') continue;
        expect(node['x-unit'], key).toBeTruthy();
        if (typeof node.default !== 'number') continue;
        expect(node.default, key).toBeGreaterThanOrEqual(node.minimum ?? Infinity);
        expect(node.default, key).toBeLessThanOrEqual(node.maximum ?? -Infinity);
      }
    }
  });
});

describe('diagnostics', () => {
  it('name all problems at once, each with file, line and column, in the order of the file', () => {
    const text = [
      'poolz: []',
      'pools:',
      '  - id: llama',
      '    engineCidr: [10.0.0.0/8]',
      'router:',
      '  routing: { holdMs: 60ms, tieRatio: 7, tieCandidates: 1.5 }',
      'log: { level: inf }',
    ].join('\n');
    expect(errorOf(text).split('\n')).toEqual([
      'fleet.yaml:1:1: poolz: unknown key; did you mean "pools"?',
      'fleet.yaml:4:5: pools[0].engineCidr: unknown key; did you mean "engineCidrs"?',
      'fleet.yaml:6:22: router.routing.holdMs: must be a plain number in ms, not a text',
      'fleet.yaml:6:38: router.routing.tieRatio: must be at most 1',
      'fleet.yaml:6:56: router.routing.tieCandidates: must be a whole number',
      'fleet.yaml:7:15: log.level: must be one of debug, info, warn, error; did you mean "info"?',
    ]);
  });

  it('name a bound with its unit', () => {
    expect(errorOf('router: { routing: { holdMs: 0 } }')).toContain('must be at least 1 ms');
    expect(errorOf('router: { limits: { bodyBytes: 1 } }')).toContain(
      'must be at least 1024 bytes',
    );
  });

  it('keep the bound of working-set admission between its least and its greatest', () => {
    expect(errorOf('router: { routing: { workingSetBound: 0.4 } }')).toContain(
      'router.routing.workingSetBound: is 0.4, which is not between workingSetBoundMin (0.5) and workingSetBoundMax (1.2)',
    );
  });

  it('say what an empty section and a wrong kind of value should be', () => {
    expect(errorOf('router:')).toBe(
      'fleet.yaml:1:8: router: is empty; give a section of keys or remove the key',
    );
    expect(errorOf('pools: llama')).toContain('pools: must be an array, not a string');
    expect(errorOf('- a')).toContain('must be a section of keys, not a list');
  });

  it('say where else a missing value may come from', () => {
    expect(errorOf('agent: { pool: a }')).toContain(
      'agent.engines: is missing (or set --engine or SPILLWAY_ENGINES)',
    );
  });

  it('place a syntax error and a repeated key', () => {
    expect(errorOf('a: [1')).toMatch(/^fleet\.yaml:1:\d+: /);
    expect(errorOf('models:\n  m: { pool: default }\n  m: { pool: default }')).toBe(
      'fleet.yaml:3:3: this key stands here a second time',
    );
  });

  it('never quote a secret', () => {
    const text = 'pools: [{ id: a, apiKey: "ab cd" }]';
    expect(errorOf(text)).toContain('pools[0].apiKey: must be 1 to 512 visible ASCII characters');
    expect(errorOf(text)).not.toContain('ab cd');
  });

  it('tell an empty file from a configuration without settings', () => {
    expect(errorOf('')).toBe('fleet.yaml: is empty');
    expect(errorOf('# nothing\n')).toBe('fleet.yaml: is empty');
    expect(parse('{}').ok).toBe(true);
  });
});

describe('environment variables', () => {
  const text = 'pools:\n  - id: a\n    apiKey: ${ENGINE_KEY}\n';

  it('stand in for secrets', () => {
    const result = parse(text, { environment: { ENGINE_KEY: 's3cret' } });
    expect(result.ok && result.config.pools[0]?.apiKey).toBe('s3cret');
  });

  it('that are missing or empty are errors that name them', () => {
    expect(errorOf(text)).toBe('fleet.yaml:3:13: environment variable ENGINE_KEY is not set');
    expect(errorOf(text, { environment: { ENGINE_KEY: '' } })).toContain('ENGINE_KEY is empty');
  });

  it('that are not set are all that is said of their values', () => {
    const text = [
      'region: a',
      'router:',
      "  links: { listen: '0.0.0.0:1', secrets: ['${A}'] }",
      "  tier: { listen: '0.0.0.0:2', keys: [{ id: k, secret: a-secret-of-the-tier }] }",
      "  global: { urls: ['ws://g:1'], secret: a-secret-of-the-links }",
      "pools: [{ id: p, agentSecrets: '${B}' }]",
    ];
    const regions =
      "regions: [{ name: a, zone: z, baseUrl: 'http://a:1', linkSecrets: ['${C}'], tierKey: { id: k, secret: '${D}' } }]";
    const unset = (lines: readonly string[]) =>
      errorOf(lines.join('\n'), { environment: { A: 'short' } }).split('\n');
    // Of another type than a list, and whatever it is: the variable first.
    expect(unset(text)).toEqual(['fleet.yaml:6:32: environment variable B is not set']);
    const typed = [...text.slice(0, 5), "pools: [{ id: p, agentSecrets: ['${B}'] }]", regions];
    expect(unset(typed)).toEqual([
      'fleet.yaml:3:43: router.links.secrets[0]: is shorter than 16 characters, and agents come from other machines',
      'fleet.yaml:6:33: environment variable B is not set',
      'fleet.yaml:7:68: environment variable C is not set',
      'fleet.yaml:7:103: environment variable D is not set',
    ]);
  });

  it('are not read out of keys, out of their own values, or behind $$', () => {
    const nested = parse('region: ${A}', { environment: { A: '${B}', B: 'x' } });
    expect(nested.ok && nested.config.region).toBe('${B}');
    const escaped = parse('region: $${A}', { environment: { A: 'x' } });
    expect(escaped.ok && escaped.config.region).toBe('${A}');
    expect(errorOf('${A}: 1', { environment: { A: 'region' } })).toContain('unknown key');
  });
});

describe('flags', () => {
  it('win over the file, and their problems name the flag', () => {
    const overlay = (value: unknown) => [{ path: ['region'], value, source: '--region' }];
    const result = parse('region: a', { overlays: overlay('b') });
    expect(result.ok && result.config.region).toBe('b');
    expect(errorOf('region: a', { overlays: overlay('b c') })).toBe(
      '--region: must be 1 to 200 printable characters without spaces',
    );
  });

  it('are enough where there is no file', () => {
    const overlays = [
      { path: ['agent', 'engines'], value: [{ url: 'http://127.0.0.1:1/v1' }], source: '--engine' },
    ];
    const result = parseFleet({ file: null, text: '', environment: {}, overlays });
    expect(!result.ok && result.error).toBe(
      '--engine: must have no path: write http://127.0.0.1:1',
    );
  });

  it('name the field where one flag fills in what another gave', () => {
    const kvEvents = { endpoint: '127.0.0.1:5557' };
    const value = [{ url: 'http://127.0.0.1:1', kvEvents }];
    const overlays = [{ path: ['agent', 'engines'], value, source: '--engine' }];
    const result = parseFleet({ file: null, text: '', environment: {}, overlays });
    expect(!result.ok && result.error).toContain('--engine: kvEvents.endpoint: must be like tcp:');
  });
});

describe('cross-field rules', () => {
  it('a model names a pool that there is', () => {
    expect(errorOf('pools: [{ id: llama }]\nmodels: { m: { pool: lama } }')).toBe(
      'fleet.yaml:2:22: models.m.pool: there is no pool "lama"; did you mean "llama"?',
    );
  });

  it('a pool stands once', () => {
    expect(errorOf('pools: [{ id: a }, { id: a }]')).toContain('pools[1].id: pool "a" stands');
  });

  const HASH = `sha256:${'0'.repeat(64)}`;
  const PAIR = 'cert: c.pem, key: k.pem';

  it('a listener that others reach has keys, demands certificates, or is said to be open', () => {
    const clients = (more: string) => `router: { clients: { listen: 0.0.0.0:8080${more} } }`;
    expect(errorOf(clients(''))).toContain('router.clients.listen: is reachable');
    expect(errorOf(clients(`, tls: { ${PAIR} }`))).toContain('router.clients.listen: is reachable');
    expect(parse(clients(', access: open')).ok).toBe(true);
    expect(parse(clients(`, keys: [{ name: a, hash: "${HASH}" }]`)).ok).toBe(true);
    const tls = `, tls: { ${PAIR}, ca: ca.pem, clientAuth: required }`;
    expect(parse(clients(tls)).ok).toBe(true);
    expect(errorOf(clients(`, access: open, keys: [{ name: a, hash: "${HASH}" }]`))).toContain(
      'router.clients.access: is open to everybody, but there are keys',
    );
  });

  it('links that others reach need secrets that cannot be guessed, or certificates', () => {
    const links = (more: string) => `router: { links: { listen: "[::]:8081"${more} } }`;
    expect(errorOf(links(''))).toContain('needs router.links.secrets');
    expect(errorOf(links(', secrets: [a-long-enough-secret, short-secret]'))).toMatch(
      /links.secrets\[1\]: is shorter than 16 characters, and agents come from other machines$/,
    );
    expect(parse(links(', secrets: [a-long-enough-secret]')).ok).toBe(true);
    const required = `, tls: { ${PAIR}, ca: ca.pem, clientAuth: required }`;
    expect(parse(links(required)).ok).toBe(true);
    expect(errorOf(links(required.replace('required', 'optional')))).toContain(
      'needs router.links.secrets',
    );
    expect(errorOf(`pools: [{ id: a, agentSecrets: [x] }]\n${links('')}`)).toContain(
      'pools[0].agentSecrets[0]: is shorter',
    );
    expect(parse('router: { links: { secrets: [s] } }').ok).toBe(true);
  });

  it('certificates of clients come from CAs that are named, and a certificate has its key', () => {
    const tls = (more: string) => `router: { links: { tls: { ${PAIR}, ${more} } } }`;
    expect(errorOf(tls('clientAuth: required'))).toBe(
      'fleet.yaml:1:64: router.links.tls.clientAuth: is required, but of which CAs? Name their file in router.links.tls.ca',
    );
    expect(errorOf('router: { admin: { tls: { cert: c.pem } } }')).toContain(
      'router.admin.tls.key: is missing',
    );
    expect(errorOf('pools: [{ id: a, engineTls: { key: k.pem } }]')).toContain(
      'pools[0].engineTls.key: stands alone: cert is needed beside it',
    );
  });

  it('a key of a client is written as its hash, and stands once', () => {
    const keys = (...hashes: string[]) =>
      `router: { clients: { keys: [${hashes.map((hash) => `{ name: a, hash: "${hash}" }`).join(', ')}] } }`;
    expect(errorOf(keys('sk-in-the-clear'))).toContain(
      'keys[0].hash: must be sha256: and 64 hex digits, as `spillway key new` prints it',
    );
    expect(errorOf(keys('sk-in-the-clear'))).not.toContain('sk-in');
    expect(errorOf(keys(HASH, HASH))).toContain('keys[1].hash: stands here a second time');
  });

  it('two listeners have two addresses, unless the system chooses', () => {
    const two = (port: string) =>
      `router: { clients: { listen: 127.0.0.1:${port} }, links: { listen: 127.0.0.1:${port} } }`;
    expect(errorOf(two('9000'))).toContain('router.links.listen: 127.0.0.1:9000 is taken');
    expect(parse(two('0')).ok).toBe(true);
  });

  it('an agent has each engine once, a pool that there is, a secret for other machines', () => {
    const agent = (body: string) => `pools: [{ id: a }]\nagent: { pool: a, ${body} }`;
    const one = 'engines: [{ url: http://localhost:8000 }]';
    expect(
      errorOf(agent('engines: [{ url: http://localhost:8000 }, { url: http://127.0.0.1:8000 }]')),
    ).toContain('is the same engine');
    const two = (first: string, second: string): string =>
      agent(
        `engines: [{ url: http://localhost:1, advertise: ${first} }, { url: http://localhost:2, advertise: ${second} }]`,
      );
    expect(errorOf(two('http://10.0.0.1:8000', 'http://10.0.0.1:8000'))).toBe(
      'fleet.yaml:2:129: agent.engines[1].advertise: http://10.0.0.1:8000 is where an earlier engine is: routers could not tell them apart',
    );
    expect(errorOf(two('http://localhost:2', 'null'))).toContain('is where an earlier engine is');
    expect(parse(two('http://10.0.0.1:8000', 'http://10.0.0.1:8001')).ok).toBe(true);
    expect(errorOf(`pools: [{ id: a }]\nagent: { pool: b, ${one} }`)).toContain('no pool "b"');
    expect(errorOf(agent(`${one}, routers: [ws://r1:8081]`))).toContain('set agent.secret');
    expect(errorOf(agent(`${one}, routers: [ws://r1:8081], secret: s`))).toContain(
      'agent.secret: is shorter than 16 characters',
    );
    expect(parse(agent(`${one}, routers: [ws://r1:8081], secret: long-enough-secret`)).ok).toBe(
      true,
    );
    const certified = 'routers: [wss://r1:8081], routerTls: { cert: c.pem, key: k.pem }';
    expect(parse(agent(`${one}, ${certified}`)).ok).toBe(true);
  });

  it('one body fits into all bodies', () => {
    const limits = 'router: { limits: { bodyBytes: 2000000, bodyBytesMax: 1048576 } }';
    expect(errorOf(limits)).toContain('must not exceed bodyBytesMax');
  });

  it('the own region is one of the regions', () => {
    const regions = 'regions: [{ name: fra, zone: eu, baseUrl: https://fra.example }]';
    expect(errorOf(`region: fre\n${regions}`)).toContain('did you mean "fra"');
    expect(parse(`region: fra\n${regions}`).ok).toBe(true);
  });
});

describe('files', () => {
  it('that are missing or too large are refused in words', () => {
    const folder = mkdtempSync(join(tmpdir(), 'spillway-config-'));
    try {
      const file = join(folder, 'fleet.yaml');
      expect(loadFleet(file, {}, [])).toMatchObject({ ok: false });
      writeFileSync(file, `# ${'x'.repeat(1_100_000)}\nregion: a\n`);
      const result = loadFleet(file, {}, []);
      expect(!result.ok && result.error).toContain('larger than');
      expect(loadFleet(folder, {}, []).ok).toBe(false);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

describe('workers', () => {
  const of = (router: string): string => errorOf(`router: ${router}`);

  it('are a number, or auto', () => {
    for (const workers of ['1', '64', 'auto']) {
      expect(of(`{ workers: ${workers} }`)).toBe('no error');
    }
    for (const workers of ['0', '65', 'many']) {
      expect(of(`{ workers: ${workers} }`)).toMatch(/must be auto, or a whole number from 1 to 64/);
    }
  });

  it('need room for their link ports, beside the other listeners', () => {
    expect(of('{ workers: 4 }')).toBe('no error');
    expect(of('{ workers: 4, links: { listen: "127.0.0.1:8071" } }')).toMatch(
      /gives further workers the ports 8081 to 8083, and 127.0.0.1:8082 is another listener/,
    );
    expect(of('{ workers: 20, links: { listen: "127.0.0.1:65520" } }')).toMatch(
      /leaves no room for 20 workers: they go up to port 65548/,
    );
  });

  it('need a listener for operators', () => {
    expect(of('{ workers: auto, admin: null }')).toMatch(/is needed with workers/);
    expect(of('{ admin: null }')).toBe('no error');
  });
});
