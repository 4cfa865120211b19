import { describe, expect, it } from 'vitest';

import { parseEngineSimOptions } from './flag-values.ts';
import { ENGINE_SIM_OPTIONS } from './flags.ts';

describe('engine-sim options', () => {
  it('are complete with nothing given', () => {
    const parsed = parseEngineSimOptions({});
    expect(parsed).toMatchObject({
      ok: true,
      options: { host: '127.0.0.1', port: 8_000, promptTokensDetails: true, apiKey: null },
    });
  });

  it('size the profile', () => {
    const parsed = parseEngineSimOptions({
      profile: 'cpu-tiny-llama',
      kvTokens: '1000',
      maxNumSeqs: '3',
      promptTokensDetails: false,
    });
    if (!parsed.ok) throw new Error(parsed.problems.join());
    expect(parsed.options.profile).toMatchObject({
      kvBlocks: 32,
      maxNumSeqs: 3,
      maxNumBatchedTokens: 1_024,
    });
    expect(parsed.options.promptTokensDetails).toBe(false);
  });

  it('name every flag at fault at once', () => {
    const parsed = parseEngineSimOptions({ port: '70000', profile: 'none', loadingMs: '-1' });
    expect(parsed.ok).toBe(false);
    if (parsed.ok) return;
    expect(parsed.problems.map((problem) => problem.split(':')[0])).toEqual([
      '--profile',
      '--port',
      '--loading-ms',
    ]);
  });

  it('are described each', () => {
    for (const { flags, description } of ENGINE_SIM_OPTIONS) {
      expect(flags).toMatch(/^--/);
      expect(description.length).toBeGreaterThan(10);
    }
  });
});
