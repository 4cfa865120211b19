// What the configuration lets a tenant list fits into the context that is signed for each of its requests, by the code that signs.

import { describe, expect, test } from 'vitest';
import { API_ROUTES } from '../../router/gateway/api-routes.ts';
import { ContextDoor, signContext } from '../../router/gateway/tier-context.ts';
import { parseFleet } from '../../shared/config/load.ts';
import type { RegionId, RouterId } from '../../shared/model/ids.ts';
import { MAX_CONTEXT_LENGTH } from '../../shared/model/signed-context.ts';
import { MAX_KEY } from '../../shared/protocol/limits.ts';

const KEY = { id: 'k'.repeat(64), secret: 'a-secret-of-20-chars' };
const PATH = Object.values(API_ROUTES)
  .flatMap(({ paths }) => paths)
  .reduce((longest, path) => (path.length > longest.length ? path : longest));

/** Names of so many characters, of two bytes each. */
const named = (prefix: string, characters: number): string => prefix.padEnd(characters, 'é');

function fleet(regions: number, characters: number) {
  const names = Array.from({ length: regions }, (_, k) => named(`r${k}`, characters));
  const text = JSON.stringify({
    tenants: [{ name: named('t', characters), residency: { allow: names } }],
    regions: names.map((name, k) => ({
      ...{ name, zone: named(`z${k}`, characters), baseUrl: `http://r${k}` },
      ...{ linkSecrets: [`link-secret-of-region-${k}`] },
      tierKey: { id: `k${k}`, secret: `tier-secret-of-region-${k}` },
    })),
    global: {},
  });
  const parsed = parseFleet({ file: 'f', text, environment: {}, overlays: [] });
  return { names, parsed };
}

/** The longest context of the tenant, and whether a region reads it. */
function signed(names: readonly string[], characters: number) {
  const [region = ''] = names as RegionId[];
  const token = signContext(
    {
      ...{ attempt: 'a'.repeat(80), from: 'f'.repeat(32) as RouterId, seq: 2 ** 52 },
      ...{ tenant: named('t', characters), saltGroup: named('t', characters) },
      residency: { allow: names, fallback: [] },
      zones: names.map((_, k) => named(`z${k}`, characters)),
      ...{ conversation: 'c'.repeat(MAX_KEY), byId: 'i'.repeat(MAX_KEY), away: true },
      ...{ awayForMs: 123_456_789.123_456_78, deadlineInMs: 123_456.123_456_789 },
    },
    {
      region: region as RegionId,
      key: KEY,
      bound: { method: 'POST', path: PATH, body: Buffer.from('') },
    },
    1_800_000_000_123.5,
  );
  const door = new ContextDoor(region as RegionId, [KEY]);
  return {
    token,
    verdict: door.open(token, { method: 'POST', path: PATH }, 1_800_000_000_124).kind,
  };
}

describe('the lists of a tenant', () => {
  test('that the configuration takes are read by a region, as long as they may be', () => {
    let taken = 0;
    for (let regions = 1; regions <= 64; regions += 3) {
      for (const characters of [3, 10, 20, 60, 200]) {
        const { names, parsed } = fleet(regions, characters);
        if (!parsed.ok) continue;
        taken += 1;
        const { token, verdict } = signed(names, characters);
        expect(verdict, `${regions} regions of ${characters}`).toBe('good');
        expect(token.length).toBeLessThanOrEqual(MAX_CONTEXT_LENGTH);
      }
    }
    expect(taken).toBeGreaterThan(30);
  });

  test('that a region would not read are refused, with the way out', () => {
    const { names, parsed } = fleet(64, 40);
    expect(signed(names, 40).verdict).toBe('refused');
    expect(parsed.ok).toBe(false);
    if (parsed.ok) return;
    expect(parsed.error).toMatch(
      /tenants\[0\]: makes signed contexts of up to \d+ characters, and regions read 8192/,
    );
    expect(parsed.error).toContain('shorter names');
  });
});
