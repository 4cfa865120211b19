import { createHash } from 'node:crypto';
import { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { RegionId } from '../../shared/model/ids.ts';
import {
  ANYBODY,
  mayUse,
  NOBODY,
  Tenants,
  UNTENANTED,
  type TenancyOptions,
  type TenancyPlace,
  type TenantOptions,
} from './tenants.ts';

const region = (name: string): RegionId => name as RegionId;
const sha256 = (key: string): string => createHash('sha256').update(key).digest('hex');
const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

const ZONES = { fra: 'eu', ams: 'eu', tyo: 'apac', sin: 'apac' };
const CLIENTS_URLS = { eu: 'https://eu.example', apac: 'https://apac.example' };

function tenant(name: string, changes: Partial<TenantOptions> = {}): TenantOptions {
  return {
    name,
    keys: [{ name: `${name}-key`, sha256: sha256(name) }],
    residency: null,
    ingress: 'any',
    models: null,
    certifications: [],
    tier: null,
    saltGroup: name,
    ...changes,
  };
}

function place(changes: Partial<TenancyPlace> = {}): TenancyPlace {
  return { region: null, zone: 'apac', zones: ZONES, clientsUrls: CLIENTS_URLS, ...changes };
}

const inRegion = (
  name: keyof typeof ZONES,
  facts: { certifications?: readonly string[]; tiers?: readonly string[] } = {},
): TenancyPlace =>
  place({
    region: { id: region(name), certifications: [], tiers: [], ...facts },
    zone: ZONES[name],
  });

const only = (...allow: string[]) => ({ allow: allow.map(region), fallback: [] });

function tenants(list: readonly TenantOptions[], at = place()): Tenants {
  return new Tenants({ ...UNTENANTED, tenants: list, place: at });
}

function found(table: Tenants, key: string) {
  const verdict = table.check(bearer(key), new Socket());
  return verdict.kind === 'known' ? verdict.owner : verdict.kind;
}

describe('a request', () => {
  const table = tenants([
    tenant('bank', { saltGroup: 'finance', models: ['small'] }),
    tenant('shop', { residency: only('tyo') }),
  ]);

  test('is of the tenant whose key it shows, with what follows from that', () => {
    expect(found(table, 'bank')).toMatchObject({
      client: 'bank-key',
      tier: null,
      tenant: { name: 'bank', saltGroup: 'finance', residency: null, refusal: null },
    });
    expect(found(table, 'shop')).toMatchObject({ tenant: { residency: { allow: ['tyo'] } } });
  });

  test('of nobody is refused where there are tenants, whether or not they have keys', () => {
    expect(found(table, 'guess')).toBe('unknown');
    expect(table.check({}, new Socket()).kind).toBe('missing');
    expect(tenants([tenant('keyless', { keys: [] })]).keyed).toBe(true);
    expect(new Tenants(UNTENANTED).keyed).toBe(false);
  });

  test('may use the models of its tenant alone', () => {
    const { tenant: bank } = found(table, 'bank') as { tenant: typeof ANYBODY };
    expect(mayUse(bank, 'small')).toBe(true);
    expect(mayUse(bank, 'large')).toBe(false);
    expect(mayUse(ANYBODY, 'large')).toBe(true);
  });

  test('of a client without tenant is anybody’s', () => {
    const clientKeys = [{ name: 'chat', sha256: sha256('k') }];
    const plain = new Tenants({ ...UNTENANTED, clientKeys });
    expect(found(plain, 'k')).toEqual({ ...NOBODY, client: 'chat' });
    expect(plain).toMatchObject({ keyed: true, any: false });
  });

  test('goes by a new configuration from then on, also on a connection that was known', () => {
    const changing = tenants([tenant('bank')]);
    const socket = new Socket();
    const ask = () => {
      const verdict = changing.check(bearer('bank'), socket);
      return verdict.kind === 'known' ? verdict.owner.tenant.refusal?.code : verdict.kind;
    };
    expect(ask()).toBeUndefined();
    const bound: TenancyOptions = {
      ...UNTENANTED,
      tenants: [tenant('bank', { residency: only('fra') })],
      place: inRegion('tyo'),
    };
    changing.configure(bound);
    expect(ask()).toBe('residency_violation');
    changing.configure(UNTENANTED);
    expect(ask()).toBe('unknown');
  });
});

describe('where a tenant is served', () => {
  test.each<[string, Partial<TenantOptions>, TenancyPlace, string | null]>([
    ['everywhere, without a list', {}, inRegion('tyo'), null],
    ['in a region of its list', { residency: only('fra', 'ams') }, inRegion('ams'), null],
    [
      'in a fallback too: whether it is needed is the global tier’s to know',
      { residency: { allow: [region('fra')], fallback: [region('tyo')] } },
      inRegion('tyo'),
      null,
    ],
    ['in no other region', { residency: only('fra') }, inRegion('tyo'), 'residency_violation'],
    [
      'by no global router’s own word: routing filters there',
      { residency: only('fra') },
      place({ zone: 'apac' }),
      null,
    ],
    ['certified', { certifications: ['c5'] }, inRegion('fra', { certifications: ['c5'] }), null],
    [
      'not where a certification is missing',
      { certifications: ['c5', 'hds'] },
      inRegion('fra', { certifications: ['c5'] }),
      'residency_violation',
    ],
    ['in its tier', { tier: 'gold' }, inRegion('fra', { tiers: ['gold'] }), null],
    ['in no other tier', { tier: 'gold' }, inRegion('fra'), 'residency_violation'],
    [
      'where nothing is said of the region, by its list alone',
      { tier: 'gold', certifications: ['c5'] },
      place({ region: { id: region('fra'), certifications: null, tiers: null } }),
      null,
    ],
    ['in its zone', { ingress: 'inZone', residency: only('fra') }, place({ zone: 'eu' }), null],
    [
      'in a region of its zone',
      { ingress: 'inZone', residency: only('fra') },
      inRegion('fra'),
      null,
    ],
    [
      'in no other zone, though its key is good there',
      { ingress: 'inZone', residency: only('fra') },
      place({ zone: 'apac' }),
      'misdirected_request',
    ],
    [
      'not in the zone of a fallback',
      { ingress: 'inZone', residency: { allow: [region('fra')], fallback: [region('tyo')] } },
      place({ zone: 'apac' }),
      'misdirected_request',
    ],
    [
      'by no router that stands in no zone',
      { ingress: 'inZone', residency: only('fra') },
      place({ zone: null }),
      'misdirected_request',
    ],
    [
      'nowhere in zone, where its list names no region that is known',
      { ingress: 'inZone', residency: only('gone') },
      place({ zone: 'eu' }),
      'misdirected_request',
    ],
  ])('%s', (_case, changes, at, code) => {
    const owner = found(tenants([tenant('t', changes)], at), 't') as typeof NOBODY;
    expect(owner.tenant.refusal?.code ?? null).toBe(code);
  });

  test('is told to whoever asks in the wrong zone, as far as it is known', () => {
    const bound = tenant('t', { ingress: 'inZone', residency: only('fra') });
    const told = found(tenants([bound]), 't') as typeof NOBODY;
    expect(told.tenant.refusal).toMatchObject({ ingress: 'https://eu.example' });
    expect(told.tenant.refusal?.message).toContain('https://eu.example');
    const unknown = found(tenants([bound], place({ clientsUrls: {} })), 't') as typeof NOBODY;
    expect(unknown.tenant.refusal).toMatchObject({ ingress: null });
  });
});

test('operators ask for a tenant by its name', () => {
  const table = tenants([tenant('bank')]);
  expect(table.asked('bank').name).toBe('bank');
  expect(table.asked(null)).toBe(ANYBODY);
  expect(() => table.asked('bnak')).toThrow('no such tenant');
});
