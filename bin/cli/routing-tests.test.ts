import { describe, expect, it } from 'vitest';
import { parseFleet } from '../../shared/config/load.ts';
import { routingTestProblems } from './routing-tests.ts';

const region = (name: string, changes: object = {}) => ({
  name,
  zone: name,
  baseUrl: `http://${name}.example`,
  ...changes,
});

interface Asked {
  readonly tenant?: object;
  readonly regions?: readonly object[];
  readonly models?: object;
  /** Absent: `m`. */
  readonly model?: string;
}

/** What `validate` says of a test that expects these regions; nothing where it holds. */
function said(
  expected: readonly string[],
  { tenant = {}, regions, models = {}, model = 'm' }: Asked,
): string {
  const text = JSON.stringify({
    region: 'fra',
    models,
    regions: regions ?? [region('fra'), region('tyo'), region('iad')],
    tenants: [{ name: 'a', ...tenant }],
    tests: [{ tenant: 'a', model, regions: expected }],
  });
  const input = { file: 'f', text, environment: {}, overlays: [] };
  const result = parseFleet({ ...input, checks: routingTestProblems });
  return result.ok ? '' : result.error;
}

describe('a test of routing', () => {
  it.each<[string, readonly string[], Asked]>([
    ['every region, without a list', ['tyo', 'iad', 'fra'], {}],
    ['those of the list', ['fra'], { tenant: { residency: { allow: ['fra'] } } }],
    [
      'no fallback while an allowed one is well',
      ['fra'],
      { tenant: { residency: { allow: ['fra'], fallback: ['tyo'] } } },
    ],
    [
      'the first fallback, where the allowed one is not to be used',
      ['tyo'],
      {
        tenant: { residency: { allow: ['fra'], fallback: ['tyo', 'iad'] } },
        regions: [region('fra', { rollout: 'off' }), region('tyo'), region('iad')],
      },
    ],
    [
      'active regions before those for failover',
      ['tyo'],
      { regions: [region('fra', { rollout: 'failover' }), region('tyo')] },
    ],
    [
      'those with the certifications',
      ['tyo'],
      {
        tenant: { certifications: ['c5'] },
        regions: [region('fra'), region('tyo', { certifications: ['c5'] })],
      },
    ],
    [
      'those of the tier',
      ['tyo'],
      { tenant: { tier: 'gold' }, regions: [region('fra'), region('tyo', { tiers: ['gold'] })] },
    ],
    [
      'those that are meant to serve the model',
      ['tyo'],
      { regions: [region('fra', { models: ['x'] }), region('tyo', { models: ['m'] })] },
    ],
    [
      'those that run a revision, where a region says which it runs',
      ['fra', 'tyo'],
      {
        model: 'm@r1',
        regions: [
          region('fra', { models: ['m'] }),
          region('tyo', { models: ['m@r1', 'm@r2'] }),
          region('iad', { models: ['m@r2'] }),
        ],
      },
    ],
    [
      'what a tenant may use of a model',
      ['tyo'],
      {
        tenant: { models: ['m@r2'] },
        regions: [region('fra', { models: ['m@r1'] }), region('tyo', { models: ['m@r2'] })],
      },
    ],
    [
      'none for a revision that is not the tenant’s',
      [],
      { model: 'm@r1', tenant: { models: ['m@r2'] } },
    ],
    ['none for a model that there is not', [], { models: { other: { pool: 'default' } } }],
    ['none for a model that is not the tenant’s', [], { tenant: { models: ['other'] } }],
    ['the one region of a file without a list', ['fra'], { regions: [] }],
  ])('finds %s', (_case, expected, asked) => {
    expect(said(expected, asked)).toBe('');
  });

  it('that finds others is a problem at its place, with what was found and why', () => {
    const asked = { tenant: { residency: { allow: ['fra'] } } };
    expect(said(['fra', 'tyo'], asked)).toMatch(
      /^f:1:\d+: tests\[0\]\.regions: a asks for m: expected fra, tyo, found fra$/,
    );
    expect(said([], asked)).toContain('expected a refusal, found fra');
    const closed = [region('fra', { rollout: 'off' }), region('tyo')];
    expect(said(['fra'], { ...asked, regions: closed })).toContain(
      'found a refusal (fra: rollout, tyo: residency)',
    );
  });
});
