// What clients are offered, as the configuration has it.

import { describe, expect, it } from 'vitest';
import { parseFleet } from './load.ts';
import { restartFields } from './restart.ts';
import type { FleetConfig } from './schema.ts';

const parse = (text: string) =>
  parseFleet({ file: 'fleet.yaml', text, environment: {}, overlays: [] });
const cors = (origin: string) =>
  `router: { clients: { cors: { origins: [${JSON.stringify(origin)}] } } }`;
function config(text: string): FleetConfig {
  const result = parse(text);
  if (!result.ok) throw new Error(result.error);
  return result.config;
}

describe('pages of other origins', () => {
  it('have no leave by default', () => {
    expect(config('region: a').router.clients).toMatchObject({ cors: null, explain: false });
  });

  it.each(['*', 'https://app.example.com', 'http://localhost:3000', 'http://[::1]:8080'])(
    'are named as browsers name them: %s',
    (origin) => {
      const read = config(cors(origin)).router.clients.cors;
      expect(read).toEqual({ origins: [origin], maxAgeS: 600 });
    },
  );

  it.each([
    'https://app.example.com/',
    'https://App.example.com',
    'https://app.example.com:443',
    'app.example.com',
    'https://*.example.com',
    'null',
    '',
  ])('would never match as %j', (origin) => {
    const result = parse(cors(origin));
    expect(result.ok ? 'taken' : result.error).toMatch(
      /fleet\.yaml:1:\d+: router\.clients\.cors\.origins\[0\]: must be \* or/,
    );
  });
});

it('what clients are offered is swapped while the router runs', () => {
  const before = config('region: a');
  const after = config(
    'region: a\nrouter: { clients: { explain: true, cors: { origins: ["*"] } }, limits: { bodyRatio: 20, keepAliveMs: 90000 } }',
  );
  expect(restartFields(before, after, 'router')).toEqual([]);
});
