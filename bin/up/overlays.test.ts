import { describe, expect, it } from 'vitest';
import { parseFleet } from '../../shared/config/load.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { upOverlays, type UpTask } from './overlays.ts';
import { saidBy } from './said.ts';

const ENGINES = [{ url: 'http://10.0.0.5:8000', kind: null }];
const SECRETS = { link: 'link-secret-of-this-run', tier: 'tier-secret-of-this-run' };

/** The configuration that `up` runs with. */
function made(text: string, changes: Partial<UpTask> = {}): FleetConfig {
  const said = saidBy(text, {});
  const region = said('region') === 'b' ? 'b' : 'local';
  const asked = { listen: '127.0.0.1:8080', engines: ENGINES, apiKey: null, ca: null };
  const task = { ...asked, said, region, global: true, secrets: SECRETS, ...changes };
  const file = text === '' ? null : 'fleet.yaml';
  const result = parseFleet({ file, text, environment: {}, overlays: upOverlays(task) });
  if (!result.ok) throw new Error(result.error);
  return result.config;
}

const REGIONS = `
region: b
regions:
  - { name: a, zone: z, baseUrl: 'https://a.example', linkSecrets: [secret-of-the-links-of-a], tierKey: { id: a, secret: secret-of-the-tier-of-a } }
  - { name: b, zone: z, baseUrl: 'https://b.example' }
`;

describe('without a file', () => {
  it('there is a region alone, open to no agent of another machine', () => {
    const { router, global, pools, agent } = made('', { global: false });
    expect(global).toBeUndefined();
    expect([router.clients.listen, router.admin, router.tier, router.global]).toEqual([
      '127.0.0.1:8080',
      null,
      null,
      null,
    ]);
    expect([router.links.listen, pools[0]?.id, agent?.pool]).toEqual([
      '127.0.0.1:0',
      'default',
      'default',
    ]);
  });

  it('a global router takes the port of clients, and the region is linked to it with secrets of this run', () => {
    const { router, global, regions } = made('');
    expect([global?.clients.listen, router.clients.listen]).toEqual([
      '127.0.0.1:8080',
      '127.0.0.1:0',
    ]);
    expect(regions.map(({ name }) => name)).toEqual(['local']);
    expect(regions[0]?.linkSecrets).toEqual([router.global?.secret]);
    expect(router.global?.secret).toBe(SECRETS.link);
    expect(router.tier?.keys).toEqual([regions[0]?.tierKey]);
    for (const listen of [router.tier?.listen, global?.links.listen]) {
      expect(listen).toBe('127.0.0.1:0');
    }
  });
});

describe('of a file', () => {
  it('what it says of the links between the tiers stays', () => {
    const said = `${REGIONS}
router:
  tier: { listen: '127.0.0.1:9', keys: [{ id: mine, secret: a-tier-secret-of-the-file }] }
  global: { urls: ['wss://global.example:9081'], secret: a-link-secret-of-the-file }
`;
    const { router, regions } = made(said);
    expect(router.global?.urls).toEqual(['wss://global.example:9081']);
    expect(router.tier?.listen).toBe('127.0.0.1:9');
    expect(regions[1]).toMatchObject({
      baseUrl: 'https://b.example',
      linkSecrets: ['a-link-secret-of-the-file'],
      tierKey: { id: 'mine', secret: 'a-tier-secret-of-the-file' },
    });
  });

  it('only the region of this process is filled in', () => {
    const { router, global, regions } = made(REGIONS);
    expect(global?.zone).toBe('z');
    expect(regions[0]?.linkSecrets).toEqual(['secret-of-the-links-of-a']);
    expect(regions[0]?.baseUrl).toBe('https://a.example');
    expect(regions[1]?.linkSecrets).toEqual([SECRETS.link]);
    expect(router.tier?.keys).toEqual([{ id: 'b', secret: SECRETS.tier }]);
  });

  it('the listener that clients use stays where no flag names another', () => {
    const text = `global: { clients: { listen: '127.0.0.1:7' } }`;
    expect(made(text, { listen: null }).global?.clients.listen).toBe('127.0.0.1:7');
    expect(made(text).global?.clients.listen).toBe('127.0.0.1:8080');
  });

  it('the pool of the agent gets its engines, and other pools stay as they are', () => {
    const text = `
pools: [{ id: big, engineCidrs: [10.1.0.0/16] }, { id: small }]
models: { m: { pool: small } }
agent: { pool: small, engines: [{ url: 'http://127.0.0.1:1' }] }
router: { links: { listen: '0.0.0.0:8081', secrets: [a-secret-of-the-links] } }
`;
    const { pools, agent, router } = made(text, { engines: null });
    expect([agent?.pool, agent?.engines[0]?.url]).toEqual(['small', 'http://127.0.0.1:1']);
    expect(pools.map(({ engineCidrs }) => engineCidrs)).toEqual([
      ['10.1.0.0/16'],
      ['0.0.0.0/0', '::/0'],
    ]);
    // No address has to be proved here, so nobody from elsewhere may say one.
    expect(router.links).toMatchObject({ listen: '127.0.0.1:0', secrets: [] });
  });

  it('operators need no key of a client', () => {
    const text = `tenants: [{ name: t, keys: [{ name: k, hash: 'sha256:${'0'.repeat(64)}' }] }]`;
    const { router, global } = made(text);
    expect([router.admin?.listen, global?.admin?.listen]).toEqual(['127.0.0.1:0', '127.0.0.1:0']);
  });
});
