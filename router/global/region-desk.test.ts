import { expect, it } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import { grantFor, grants } from '../../shared/runtime/link-credentials.ts';
import type { RegionOptions } from './options.ts';
import { regionRules } from './region-desk.ts';

function region(id: string, more: Partial<RegionOptions>): RegionOptions {
  return {
    ...{ id: id as RegionId, zone: id, certifications: [], tiers: [], costMs: 0 },
    ...{ baseUrl: `http://${id}`, rollout: 'active', tls: null, linkSecrets: [], linkNames: [] },
    otherBaseUrls: [],
    tierKey: { id: `key-${id}`, secret: 'secret' },
    ...more,
  };
}

const RULES = regionRules([
  region('eu', { linkSecrets: ['eu-old', 'eu-new'] }),
  region('us', { linkSecrets: ['us'] }),
  region('ap', { linkSecrets: ['ap'], linkNames: ['router.ap.example'] }),
]);

function grantOf(secret: string | null, rules = RULES) {
  return grantFor(
    { ...rules, clientAuth: 'none' },
    {
      authorization: secret === null ? undefined : `Bearer ${secret}`,
      remoteAddress: '127.0.0.1',
      certificate: { kind: 'none' },
    },
  );
}

it.each([
  ['eu-old', 'eu', true],
  ['eu-new', 'eu', true],
  ['eu-new', 'us', false],
  ['us', 'eu', false],
  ['an agent', 'eu', false],
  [null, 'eu', false],
  // Its certificate is asked for beside the secret.
  ['ap', 'ap', false],
])('whoever links with %s speaks for %s: %s', (secret, name, may) => {
  expect(grants(grantOf(secret), name)).toBe(may);
});

it('lets nobody link without a credential, this machine included', () => {
  expect(grantOf(null, regionRules([region('eu', {})]))).toEqual({ kind: 'refused' });
});
