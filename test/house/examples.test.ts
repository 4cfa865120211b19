// The example configurations are good, and stay so.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadFleet } from '../../shared/config/load.ts';

const FOLDER = join(import.meta.dirname, '../../docs/examples');
const SECRETS = { SPILLWAY_LINK_SECRET: 'a-secret', ENGINE_KEY: 'a-key' };

describe('docs/examples', () => {
  const files = readdirSync(FOLDER).filter((file) => file.endsWith('.yaml'));

  it('has a laptop, one region and three', () => {
    expect(files.sort()).toEqual(['laptop.yaml', 'one-region.yaml', 'three-regions.yaml']);
  });

  it.each(files)('%s is valid', (file) => {
    const result = loadFleet(join(FOLDER, file), SECRETS, []);
    expect(result.ok ? '' : result.error).toBe('');
  });
});
