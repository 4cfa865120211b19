// What `spillway validate` says of mistakes in tenants, regions and the global tier: where each stands, and what was meant.

import { expect, it } from 'vitest';
import { parseFleet } from '../../shared/config/load.ts';
import { routingTestProblems } from './routing-tests.ts';

const HASH = (digit: string): string => `sha256:${digit.repeat(64)}`;

const FILE = `region: fra
models:
  llama: { pool: default }
tenants:
  - name: bank
    keys:
      - { name: bank-2026, hash: '${HASH('1')}' }
    residency:
      allow: [fra, ams]
    ingress: inZone
    certifications: [c5]
  - name: shop
    keys:
      - { name: shop-web, hash: '${HASH('2')}' }
zones:
  eu:
    clientsUrl: https://eu.inference.example
regions:
  - name: fra
    zone: eu
    certifications: [iso27001, c5]
    tiers: [gold]
    models: [llama]
    baseUrl: https://fra.inference.example:8083
    linkSecrets: [link-secret-of-fra]
    tierKey: { id: fra-1, secret: tier-secret-of-fra }
  - name: ams
    zone: eu
    certifications: [iso27001, c5]
    models: [llama]
    baseUrl: https://ams.inference.example:8083
    linkSecrets: [link-secret-of-ams]
    tierKey: { id: ams-1, secret: tier-secret-of-ams }
  - name: sin
    zone: apac
    costMs: 40
    rollout: failover
    models: [llama]
    baseUrl: https://sin.inference.example:8083
    linkSecrets: [link-secret-of-sin]
    tierKey: { id: sin-1, secret: tier-secret-of-sin }
router:
  tier:
    listen: 127.0.0.1:8083
    keys:
      - { id: fra-1, secret: tier-secret-of-fra }
  global:
    urls: [wss://global.inference.example:9081]
    secret: link-secret-of-fra
global:
  zone: eu
  affinitySecret: secret-of-conversations
tests:
  - { tenant: bank, model: llama, regions: [ams, fra] }
`;

/** Line, column and words of each problem. */
function said(text: string): readonly string[] {
  const input = { file: 'f', text, environment: {}, overlays: [] };
  const result = parseFleet({ ...input, checks: routingTestProblems });
  return result.ok ? [] : result.error.split('\n').map((line) => line.replace(/^f:/, ''));
}

it('of a good file nothing', () => {
  expect(said(FILE)).toEqual([]);
});

it.each<[string, string, string, readonly string[]]>([
  [
    'a region that there is not',
    'allow: [fra, ams]',
    'allow: [fra, asm]',
    ['9:20: tenants[0].residency.allow[1]: there is no region "asm"; did you mean "ams"?'],
  ],
  [
    'a region in capitals',
    'allow: [fra, ams]',
    'allow: [Fra, ams]',
    ['9:15: tenants[0].residency.allow[0]: there is no region "Fra"; did you mean "fra"?'],
  ],
  [
    'a zone in place of its regions',
    'allow: [fra, ams]',
    'allow: [eu]',
    ['9:15: tenants[0].residency.allow[0]: there is no region "eu": it is a zone, of fra, ams'],
  ],
  [
    'a list that is none',
    'allow: [fra, ams]',
    'allow: fra',
    ['9:14: tenants[0].residency.allow: must be an array, not a string'],
  ],
  [
    'an empty list',
    'allow: [fra, ams]',
    'allow: []',
    ['9:14: tenants[0].residency.allow: must have at least 1 element'],
  ],
  [
    'a list by another name',
    'allow: [fra, ams]',
    'alow: [fra, ams]',
    [
      '9:7: tenants[0].residency.allow: is missing',
      '9:7: tenants[0].residency.alow: unknown key; did you mean "allow"?',
    ],
  ],
  [
    'a fallback alone',
    'allow: [fra, ams]',
    'fallback: [sin]',
    ['9:7: tenants[0].residency.allow: is missing'],
  ],
  [
    'a fallback that is allowed already',
    'allow: [fra, ams]',
    'allow: [fra, ams]\n      fallback: [fra]',
    [
      '10:18: tenants[0].residency.fallback[0]: region "fra" is in allow already: it is no fallback',
    ],
  ],
  [
    'a region twice',
    'allow: [fra, ams]',
    'allow: [fra, ams, fra]',
    ['9:25: tenants[0].residency.allow[2]: region "fra" stands here a second time'],
  ],
  [
    'ingress in other words',
    'ingress: inZone',
    'ingress: in-zone',
    ['10:14: tenants[0].ingress: must be one of any, inZone; did you mean "inZone"?'],
  ],
  [
    'a member by another name',
    'ingress: inZone',
    'ingres: inZone',
    ['10:5: tenants[0].ingres: unknown key; did you mean "ingress"?'],
  ],
  [
    'a certification that no region has',
    'certifications: [c5]\n  - name: shop',
    'certifications: [c55]\n  - name: shop',
    ['11:22: tenants[0].certifications[0]: none of its regions has "c55"; did you mean "c5"?'],
  ],
  [
    'a tier that no region has',
    'certifications: [c5]\n  - name: shop',
    'tier: glod\n  - name: shop',
    [
      '11:11: tenants[0].tier: none of its regions with its certifications has tier "glod"; did you mean "gold"?',
    ],
  ],
  [
    'a model that no region serves',
    'certifications: [c5]\n  - name: shop',
    'models: [lama]\n  - name: shop',
    [
      '11:14: tenants[0].models[0]: none of its regions that may serve it serves "lama"; did you mean "llama"?',
    ],
  ],
  [
    'a revision of a model that no region serves',
    'certifications: [c5]\n  - name: shop',
    'models: [lama@r1]\n  - name: shop',
    [
      '11:14: tenants[0].models[0]: none of its regions that may serve it serves "lama@r1"; did you mean "llama"?',
    ],
  ],
  [
    'a tenant twice',
    '- name: shop',
    '- name: bank',
    ['12:11: tenants[1].name: tenant "bank" stands here a second time'],
  ],
  [
    'a name with a space',
    '- name: shop',
    '- name: my shop',
    ['12:11: tenants[1].name: must be 1 to 200 printable characters without spaces'],
  ],
  [
    'a key in place of its hash',
    `hash: '${HASH('2')}'`,
    'hash: sk-1234',
    [
      '14:33: tenants[1].keys[0].hash: must be sha256: and 64 hex digits, as `spillway key new` prints it',
    ],
  ],
  [
    'a key of another tenant',
    `hash: '${HASH('2')}'`,
    `hash: '${HASH('1')}'`,
    ['14:33: tenants[1].keys[0].hash: stands here a second time: one key is of one tenant'],
  ],
  [
    'a zone without a region',
    '  eu:\n    clientsUrl',
    '  ue:\n    clientsUrl',
    [
      '10:14: tenants[0].ingress: is inZone, and whoever asks elsewhere must be told where to go: give zones.eu.clientsUrl',
      '16:3: zones.ue: no region is in zone "ue"; did you mean "eu"?',
    ],
  ],
  [
    'an address that is no URL',
    'clientsUrl: https://eu.inference.example',
    'clientsUrl: eu.inference.example',
    ['17:17: zones.eu.clientsUrl: is not a URL; write it like http://127.0.0.1:8000'],
  ],
  [
    'a region twice in the fleet',
    '- name: sin',
    '- name: ams',
    ['34:11: regions[2].name: region "ams" stands here a second time'],
  ],
  ['no zone', '    zone: apac\n', '', ['34:5: regions[2].zone: is missing']],
  [
    'a price with its unit',
    'costMs: 40',
    'costMs: 40ms',
    ['36:13: regions[2].costMs: must be a plain number in ms, not a text'],
  ],
  [
    'a price below nothing',
    'costMs: 40',
    'costMs: -1',
    ['36:13: regions[2].costMs: must be at least 0 ms'],
  ],
  [
    'a rollout in other words',
    'rollout: failover',
    'rollout: fail-over',
    ['37:14: regions[2].rollout: must be one of off, failover, active; did you mean "failover"?'],
  ],
  [
    'an address with a path',
    'baseUrl: https://sin.inference.example:8083',
    'baseUrl: https://sin.inference.example:8083/v1',
    ['39:14: regions[2].baseUrl: must have no path: write https://sin.inference.example:8083'],
  ],
  [
    'an address without a scheme',
    'baseUrl: https://sin.inference.example:8083',
    'baseUrl: sin.inference.example:8083',
    ['39:14: regions[2].baseUrl: must start with http:// or https://, like http://127.0.0.1:8000'],
  ],
  [
    'the address of another region',
    'baseUrl: https://sin.inference.example:8083',
    'baseUrl: https://ams.inference.example:8083',
    ['39:14: regions[2].baseUrl: is where region "ams" listens: each has an address of its own'],
  ],
  [
    'a further address that is another region’s',
    'baseUrl: https://sin.inference.example:8083',
    'baseUrl: https://sin.inference.example:8083\n    otherBaseUrls: [https://ams.inference.example:8083]',
    [
      '40:21: regions[2].otherBaseUrls[0]: is where region "ams" listens: each has an address of its own',
    ],
  ],
  [
    'the link secret of another region',
    'linkSecrets: [link-secret-of-sin]',
    'linkSecrets: [link-secret-of-ams]',
    [
      '40:19: regions[2].linkSecrets[0]: stands here a second time: a secret says of one region alone which it is',
    ],
  ],
  [
    'a link secret that is no list',
    'linkSecrets: [link-secret-of-sin]',
    'linkSecrets: link-secret-of-sin',
    ['40:18: regions[2].linkSecrets: must be an array, not a string'],
  ],
  [
    'no link secret',
    '    linkSecrets: [link-secret-of-sin]\n',
    '',
    [
      '34:5: regions[2].linkSecrets: is needed by a global router, or linkNames with global.links.tls.clientAuth: by nothing else is a region known',
    ],
  ],
  [
    'a link secret that can be guessed',
    'linkSecrets: [link-secret-of-sin]',
    'linkSecrets: [secret]',
    ['40:19: regions[2].linkSecrets[0]: is shorter than 16 characters, and can be guessed'],
  ],
  [
    'the tier key of another region',
    'tierKey: { id: sin-1, secret: tier-secret-of-sin }',
    'tierKey: { id: ams-1, secret: tier-secret-of-sin }',
    ['41:20: regions[2].tierKey.id: is the id of another key: each pair of tiers has its own'],
  ],
  [
    'a tier key that is a text',
    'tierKey: { id: sin-1, secret: tier-secret-of-sin }',
    'tierKey: tier-secret-of-sin',
    ['41:14: regions[2].tierKey: must be a section of keys, not a string'],
  ],
  [
    'no tier key',
    '    tierKey: { id: sin-1, secret: tier-secret-of-sin }\n',
    '',
    [
      '34:5: regions[2].tierKey: is needed by a global router: it signs what the region is to believe',
    ],
  ],
  [
    'a region of its own that there is not',
    'region: fra\nmodels',
    'region: fran\nmodels',
    ['1:9: region: there is no region "fran" under regions; did you mean "fra"?'],
  ],
  [
    'a zone of its own that there is not',
    'global:\n  zone: eu',
    'global:\n  zone: ue',
    ['51:9: global.zone: no region is in zone "ue"; did you mean "eu"?'],
  ],
  [
    'a link by HTTP',
    'urls: [wss://global',
    'urls: [https://global',
    ['48:12: router.global.urls[0]: must start with ws:// or wss://, like ws://127.0.0.1:8000'],
  ],
  [
    'the link secret of another region for its own',
    'secret: link-secret-of-fra\nglobal',
    'secret: link-secret-of-ams\nglobal',
    [
      '49:13: router.global.secret: is none of regions[0].linkSecrets, but of region "ams": global routers would not know it as "fra"',
    ],
  ],
  [
    'a tier key that nobody signs with',
    '{ id: fra-1, secret: tier-secret-of-fra }\n  global',
    '{ id: fra-2, secret: tier-secret-of-fra }\n  global',
    [
      '46:7: router.tier.keys: have none by the id of regions[0].tierKey, "fra-1": what global routers sign would be refused',
    ],
  ],
  [
    'a tier key of another secret',
    '{ id: fra-1, secret: tier-secret-of-fra }\n  global',
    '{ id: fra-1, secret: tier-secret-of-ams }\n  global',
    [
      '46:30: router.tier.keys[0].secret: is another than that of regions[0].tierKey: what global routers sign would be refused',
    ],
  ],
  [
    'an affinity secret that can be guessed',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret',
    ['52:19: global.affinitySecret: is shorter than 16 characters, and can be guessed'],
  ],
  [
    'an old secret that is the new one',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret-of-conversations\n  affinityOldSecrets: [secret-of-conversations]',
    ['53:24: global.affinityOldSecrets[0]: stands here a second time'],
  ],
  [
    'an old secret alone',
    'affinitySecret: secret-of-conversations',
    'affinityOldSecrets: [secret-of-conversations]',
    [
      '52:24: global.affinityOldSecrets[0]: stands beside no affinitySecret, which names new conversations',
    ],
  ],
  [
    'a header in capitals',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret-of-conversations\n  conversationIds: { headers: [X-Session-Id] }',
    ['53:32: global.conversationIds.headers[0]: must be a header name in lower case'],
  ],
  [
    'a member two levels down',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret-of-conversations\n  conversationIds: { members: [a.b.c] }',
    ['53:32: global.conversationIds.members[0]: must be like name or metadata.name'],
  ],
  [
    'a stop above the start',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret-of-conversations\n  routing: { spillStopMs: 500 }',
    [
      '53:27: global.routing.spillStopMs: is above spillStartMs (400 ms): what starts would stop at once',
    ],
  ],
  [
    'a probe without its unit',
    'affinitySecret: secret-of-conversations',
    'affinitySecret: secret-of-conversations\n  probes: { interval: 5 }',
    ['53:13: global.probes.interval: unknown key; did you mean "intervalMs"?'],
  ],
  [
    'an expectation of another tenant',
    'tenant: bank, model',
    'tenant: bnak, model',
    ['54:15: tests[0].tenant: there is no tenant "bnak"; did you mean "bank"?'],
  ],
  [
    'an expectation of another model',
    'tenant: bank, model: llama',
    'tenant: bank, model: lama',
    [
      '54:43: tests[0].regions: bank asks for lama: expected ams, fra, found a refusal (fra: model, ams: model, sin: residency)',
    ],
  ],
  [
    'an expectation that does not hold',
    'regions: [ams, fra] }',
    'regions: [ams, fra, sin] }',
    ['54:44: tests[0].regions: bank asks for llama: expected ams, fra, sin, found ams, fra'],
  ],
  [
    'an expectation without regions',
    'regions: [ams, fra] }',
    'region: fra }',
    [
      '54:5: tests[0].regions: is missing',
      '54:35: tests[0].region: unknown key; did you mean "regions"?',
    ],
  ],
])('of %s where it stands, and what was meant', (_case, before, after, expected) => {
  expect(FILE.split(before)).toHaveLength(2);
  expect(said(FILE.replace(before, after))).toEqual(expected);
});
