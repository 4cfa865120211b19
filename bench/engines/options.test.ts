import { describe, expect, it } from 'vitest';
import { parseOptions, type Options } from './options.ts';

const ARMS = ['smg', 'spillway'];

function read(...args: string[]): Options {
  const options = parseOptions(args, ARMS);
  if (options === null || typeof options === 'string') throw new Error(String(options));
  return options;
}

describe('what bench:engines is asked for', () => {
  it('is everything, eight seeds, where nothing is said', () => {
    const options = read();
    expect(options.loads.map(({ name }) => name)).toEqual([
      'moderate',
      'near-capacity',
      'small-kv',
      'over-capacity',
    ]);
    expect(options.seeds).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(options).toMatchObject({ arms: null, engines: 'vllm', stored: null, limitMs: Infinity });
  });

  it('is one load and three seeds in a quick run', () => {
    const options = read('--quick');
    expect(options.loads).toHaveLength(1);
    expect(options.seeds).toEqual([1, 2, 3]);
  });

  it('takes a number of seeds, or seeds by name', () => {
    expect(read('--seeds', '2').seeds).toEqual([1, 2]);
    expect(read('--seeds', '3,7').seeds).toEqual([3, 7]);
    expect(read('--seeds', '5,').seeds).toEqual([5]);
  });

  it('says whether measured cells are taken or measured again', () => {
    expect(read('--resume').stored).toBe('take');
    expect(read('--fresh').stored).toBe('renew');
    expect(read('--report')).toMatchObject({ stored: 'take', reportOnly: true });
  });

  it('names what is tried beside what is measured', () => {
    expect(read()).toMatchObject({ kvTokens: 32_768, longWarmUp: false, settings: [] });
    const tried = read('--kv-tokens', '16384', '--long-warm-up', '--set', 'a=1', '--set', 'b=2');
    expect(tried).toMatchObject({ kvTokens: 16_384, longWarmUp: true, settings: ['a=1', 'b=2'] });
  });

  it.each([
    [['--loads', 'moderate,huge'], 'no load is called huge'],
    [['--arms', 'haproxy'], 'no arm is called haproxy'],
    [['--seeds', '0'], 'no seeds: 0'],
    [['--seeds', 'many'], 'no seeds: many'],
    [['--minutes', 'ten'], 'no number of minutes: ten'],
    [['--kv-tokens', '1000'], 'no KV cache: 1000'],
    [['--resume', '--fresh'], '--resume, --fresh and --report exclude each other'],
  ])('cannot be %j', (args, why) => {
    expect(parseOptions(args, ARMS)).toBe(why);
  });

  it('cannot be a flag that there is not', () => {
    expect(parseOptions(['--quickly'], ARMS)).toContain('--quickly');
  });
});
