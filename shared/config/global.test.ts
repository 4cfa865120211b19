// Tenants, regions and the global tier's own part, as the configuration has them.

import { describe, expect, it } from 'vitest';
import { GLOBAL_DEFAULTS, UPLINK_DEFAULTS } from '../model/global-settings.ts';
import { parseFleet } from './load.ts';
import { restartFields } from './restart.ts';
import { fleetJsonSchema, type FleetConfig } from './schema.ts';
import { nodeAt } from './schema-walk.ts';

const HASH = (digit: string): string => `sha256:${digit.repeat(64)}`;
const SECRET = 'a-secret-of-20-chars';

const parse = (value: object) =>
  // JSON is YAML: a test says its configuration as a value.
  parseFleet({ file: 'f', text: JSON.stringify(value, null, 1), environment: {}, overlays: [] });

function config(value: object): FleetConfig {
  const result = parse(value);
  if (!result.ok) throw new Error(result.error);
  return result.config;
}

/** Problems without their places, one a line. */
function problems(value: object): string[] {
  const result = parse(value);
  return result.ok ? [] : result.error.split('\n').map((line) => line.replace(/^f:\d+:\d+: /, ''));
}

const region = (name: string, changes: object = {}) => ({
  name,
  zone: name === 'fra' ? 'eu' : 'apac',
  baseUrl: `http://${name}.example:8083`,
  linkSecrets: [`link-secret-of-${name}`],
  tierKey: { id: name, secret: `tier-secret-of-${name}` },
  ...changes,
});

const tenant = (name: string, changes: object = {}) => ({
  name,
  keys: [{ name: 'main', hash: HASH('1') }],
  ...changes,
});

const TWO = [region('fra'), region('tyo')];
/** A file of a global router. */
const fleet = (changes: object = {}) => ({ regions: TWO, global: {}, ...changes });
const tenants = (...list: object[]) => fleet({ tenants: list });

describe('a global router', () => {
  it('needs no more than its regions', () => {
    const { global, regions } = config(fleet());
    expect(global?.routing).toEqual(GLOBAL_DEFAULTS);
    expect(regions[0]).toMatchObject({ rollout: 'active', costMs: 0, tiers: [], tls: null });
  });

  it('is none where there is no section of it, and then nobody needs the secrets of regions', () => {
    const regions = [{ name: 'local', zone: 'eu', baseUrl: 'http://x' }];
    expect(config({ regions }).global).toBeUndefined();
    expect(problems({ regions, global: {} })).toEqual([
      expect.stringMatching(/^regions\[0\]\.tierKey: is needed/),
      expect.stringMatching(/^regions\[0\]\.linkSecrets: is needed/),
    ]);
  });

  it('stands in no region, unless it says so', () => {
    expect(problems(fleet())).toEqual([]);
    expect(problems(fleet({ region: 'fre' }))).toEqual([
      'region: there is no region "fre" under regions; did you mean "fra"?',
    ]);
  });

  it('has bounds, units and words for every number', () => {
    const schema = fleetJsonSchema();
    for (const section of [
      ['global', 'routing'],
      ['global', 'probes'],
      ['global', 'limits'],
      ['router', 'global', 'settings'],
    ]) {
      const fields = Object.entries(nodeAt(schema, section)?.properties ?? {});
      expect(fields.length, section.join('.')).toBeGreaterThan(0);
      for (const [key] of fields) {
        const node = nodeAt(schema, [...section, key]);
        expect(node?.description, key).toBeTruthy();
        expect(node?.['x-unit'], key).toBeTruthy();
        if (typeof node?.default !== 'number') continue;
        expect(node.default, key).toBeGreaterThanOrEqual(node.minimum ?? Infinity);
        expect(node.default, key).toBeLessThanOrEqual(node.maximum ?? -Infinity);
      }
    }
  });

  it.each<[string, object, string]>([
    ['regions', { regions: [] }, 'regions: is empty'],
    [
      'a zone that is one',
      { global: { zone: 'ue' } },
      'global.zone: no region is in zone "ue"; did you mean "eu"?',
    ],
    [
      'keys where others reach it',
      { global: { clients: { listen: '0.0.0.0:9080' } } },
      'global.clients.listen: is reachable from other machines',
    ],
    [
      'one address a listener',
      { global: { links: { listen: '127.0.0.1:9080' } } },
      'global.links.listen: two listeners of this router have one address',
    ],
    [
      'an affinity secret that cannot be guessed',
      { global: { affinitySecret: 'guess' } },
      'global.affinitySecret: is shorter than 16 characters',
    ],
    [
      'to stop below where it starts',
      { global: { routing: { spillStopMs: 500 } } },
      'global.routing.spillStopMs: is above spillStartMs (400 ms)',
    ],
    [
      'secrets that cannot be guessed',
      { regions: [region('fra', { linkSecrets: ['short'] })] },
      'regions[0].linkSecrets[0]: is shorter than 16 characters',
    ],
    [
      'keys that cannot be guessed',
      { regions: [region('fra', { tierKey: { id: 'a', secret: 'short' } })] },
      'regions[0].tierKey.secret: is shorter than 16 characters',
    ],
    [
      'a secret that is of one region alone',
      {
        regions: [
          region('fra', { linkSecrets: [SECRET] }),
          region('tyo', { linkSecrets: [SECRET] }),
        ],
      },
      'regions[1].linkSecrets[0]: stands here a second time: a secret says of one region alone which it is',
    ],
    [
      'secrets of regions that no agent has',
      {
        regions: [region('fra', { linkSecrets: [SECRET] })],
        router: { links: { secrets: [SECRET] } },
      },
      'regions[0].linkSecrets[0]: is a secret of agents too',
    ],
    [
      'keys of regions that no agent has',
      {
        regions: [region('fra', { tierKey: { id: 'fra', secret: SECRET } })],
        pools: [{ id: 'p', agentSecrets: [SECRET] }],
      },
      'regions[0].tierKey.secret: is a secret of agents too',
    ],
    [
      'another key for each pair',
      { regions: [region('fra'), region('tyo', { tierKey: { id: 'fra', secret: SECRET } })] },
      'regions[1].tierKey.id: is the id of another key',
    ],
    [
      'names of certificates only where some are asked for',
      { regions: [region('fra', { linkSecrets: [], linkNames: ['*.fra.example'] })] },
      'regions[0].linkSecrets: is needed',
    ],
    [
      'a region once',
      { regions: [region('fra'), region('fra', { linkSecrets: [], linkNames: [] })] },
      'regions[1].name: region "fra" stands here a second time',
    ],
    [
      'zones that some region is in',
      { zones: { ue: { clientsUrl: 'https://x' } } },
      'zones.ue: no region is in zone "ue"; did you mean "eu"?',
    ],
  ])('needs %s', (_case, changes, problem) => {
    expect(problems(fleet(changes))).toContainEqual(expect.stringContaining(problem));
  });
});

describe('a tenant', () => {
  it('may be served everywhere, by any router, unless it says otherwise', () => {
    expect(config(tenants(tenant('a'))).tenants[0]).toMatchObject({
      ...{ residency: null, ingress: 'any', models: null, certifications: [], tier: null },
      saltGroup: null,
    });
  });

  it('has as many keys as it likes, and stands for the keys that a reachable listener needs', () => {
    const reachable = {
      global: { clients: { listen: '0.0.0.0:9080' } },
      router: { clients: { listen: '0.0.0.0:8080' } },
    };
    expect(problems({ ...tenants(tenant('a')), ...reachable })).toEqual([]);
    expect(problems({ ...tenants(tenant('a', { keys: [] })), ...reachable })).toHaveLength(2);
  });

  const allow = (...names: string[]) => ({ residency: { allow: names } });
  it.each<[string, object, string]>([
    [
      'twice',
      tenants(tenant('a'), tenant('a', { keys: [] })),
      'tenants[1].name: tenant "a" stands here a second time',
    ],
    [
      'with a key of another',
      tenants(tenant('a'), tenant('b')),
      'tenants[1].keys[0].hash: stands here a second time',
    ],
    [
      'whose list is empty',
      tenants(tenant('a', allow())),
      'tenants[0].residency.allow: must have at least 1 element',
    ],
    [
      'whose region there is not',
      tenants(tenant('a', allow('fre'))),
      'tenants[0].residency.allow[0]: there is no region "fre"; did you mean "fra"?',
    ],
    [
      'whose region stands twice',
      tenants(tenant('a', allow('fra', 'fra'))),
      'allow[1]: region "fra" stands here a second time',
    ],
    [
      'whose fallback is none',
      tenants(tenant('a', { residency: { allow: ['fra'], fallback: ['tyo', 'fra'] } })),
      'fallback[1]: region "fra" is in allow already',
    ],
    [
      'whose fallback there is not',
      tenants(tenant('a', { residency: { allow: ['fra'], fallback: ['tio'] } })),
      'fallback[0]: there is no region "tio"; did you mean "tyo"?',
    ],
    [
      'that demands what no region of it has',
      tenants(tenant('a', { ...allow('fra'), certifications: ['c5'] })),
      'tenants[0].certifications[0]: none of its regions has "c5"',
    ],
    [
      'of a tier that there is not',
      tenants(tenant('a', { tier: 'gold' })),
      'tenants[0].tier: no region with its certifications has tier "gold"',
    ],
    [
      'whose model is elsewhere',
      fleet({
        regions: [region('fra', { models: ['x'] }), region('tyo')],
        tenants: [tenant('a', { ...allow('fra'), models: ['x', 'y'] })],
      }),
      'tenants[0].models[1]: none of its regions that may serve it serves "y"',
    ],
    [
      'in zone, but of which',
      tenants(tenant('a', { ingress: 'inZone' })),
      'tenants[0].ingress: is inZone, but of which?',
    ],
    [
      'in zone that cannot be told where',
      tenants(tenant('a', { ...allow('fra', 'tyo'), ingress: 'inZone' })),
      'give zones.eu.clientsUrl or zones.apac.clientsUrl',
    ],
    [
      'beside keys of nobody',
      fleet({
        tenants: [tenant('a')],
        global: { clients: { keys: [{ name: 'k', hash: HASH('2') }] } },
      }),
      'global.clients.keys: belong to no tenant',
    ],
    [
      'behind an open door',
      fleet({ tenants: [tenant('a')], router: { clients: { access: 'open' } } }),
      'router.clients.access: is open to everybody, but there are tenants',
    ],
  ])('is an error %s', (_case, value, problem) => {
    expect(problems(value)).toContainEqual(expect.stringContaining(problem));
  });

  it('of one region alone may name it, without a list of regions', () => {
    expect(problems({ region: 'fra', tenants: [tenant('a', allow('fra'))] })).toEqual([]);
    expect(problems({ region: 'fra', tenants: [tenant('a', allow('tyo'))] })).toHaveLength(1);
  });
});

describe('a region', () => {
  const uplink = { urls: ['ws://global:9081'], secret: SECRET };
  const keys = [{ id: 'a', secret: SECRET }];

  it('hears nothing of the global tier unless it says so', () => {
    expect(config({}).router).toMatchObject({ global: null, tier: null });
  });

  it('dials global routers, and takes signed contexts at a listener of its own', () => {
    const { router } = config({ router: { global: uplink, tier: { keys } } });
    expect(router.global?.settings).toEqual(UPLINK_DEFAULTS);
    expect(router.tier).toMatchObject({ listen: '127.0.0.1:8083', tls: null });
  });

  it.each<[string, object, string]>([
    ['to say which it is', { global: { urls: ['ws://g:1'] } }, 'router.global.secret: is needed'],
    ['keys', { tier: { keys: [] } }, 'router.tier.keys: must have at least 1 element'],
    [
      'keys that cannot be guessed',
      { tier: { keys: [{ id: 'a', secret: 'b' }] } },
      'keys[0].secret: is shorter than 16',
    ],
    [
      'one key an id',
      { tier: { keys: [...keys, ...keys] } },
      'router.tier.keys[1].id: is the id of another key',
    ],
    [
      'an address of its own',
      { tier: { keys, listen: '127.0.0.1:8080' } },
      'router.tier.listen: 127.0.0.1:8080 is taken',
    ],
  ])('needs %s', (_case, router, problem) => {
    expect(problems({ router })).toContainEqual(expect.stringContaining(problem));
  });
});

it('what a test expects names tenants and regions that there are', () => {
  const tests = [{ tenant: 'b', model: 'm', regions: ['fre'] }];
  expect(problems({ ...tenants(tenant('a')), tests })).toEqual([
    'tests[0].tenant: there is no tenant "b"; did you mean "a"?',
    'tests[0].regions[0]: there is no region "fre"; did you mean "fra"?',
  ]);
});

describe('of a running router', () => {
  it('tenants, regions and their rollout are swapped at once, in both tiers', () => {
    const before = config(tenants(tenant('a')));
    const after = config(
      fleet({
        regions: [region('fra', { rollout: 'off' }), region('tyo', { costMs: 20 })],
        tenants: [tenant('b', { residency: { allow: ['tyo'] } })],
        zones: { eu: { clientsUrl: 'https://eu.example' } },
        global: { routing: { temperatureMs: 50 }, clients: { explain: true } },
      }),
    );
    expect(restartFields(before, after, 'global')).toEqual([]);
    expect(restartFields(before, after, 'router')).toEqual([]);
  });

  it('listeners and zone wait for a restart; the secrets of conversations and probes do not', () => {
    const after = config(
      fleet({ global: { zone: 'eu', affinitySecret: SECRET, clients: { listen: '127.0.0.1:1' } } }),
    );
    expect(restartFields(config(fleet()), after, 'global').toSorted()).toEqual([
      'global.clients.listen',
      'global.zone',
    ]);
    expect(restartFields(config(fleet()), after, 'router')).toEqual([]);
  });
});
