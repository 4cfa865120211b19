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

  it.each([
    ['--dev-mode', { kind: 'tgi', devMode: true }],
    ['--kv-events-config', { kind: 'llamacpp', kvEvents: '{}' }],
    ['--data-parallel-size', { kind: 'tgi', dataParallelSize: '2' }],
    ['--no-tools', { kind: 'sglang', tools: false }],
    ['--enable-metrics', { metrics: true }],
    ['--term-ending', { termEnding: 'hang', shutdownTimeout: '5' }],
  ])('refuse %s where it would mean nothing', (flag, values) => {
    const parsed = parseEngineSimOptions(values);
    expect(parsed.ok ? [] : parsed.problems.map((problem) => problem.split(':')[0])).toEqual([
      flag,
    ]);
  });

  it("take other kinds' flags as long as they are at their defaults", () => {
    const values = { kind: 'tgi', dataParallelSize: '1', shutdownTimeout: '0', tools: true };
    expect(parseEngineSimOptions(values).ok).toBe(true);
  });

  it('take KV events in the words of vLLM, its defaults filled in', () => {
    const json = '{"enable_kv_cache_events":true,"replay_endpoint":"tcp://*:5558","topic":"kv"}';
    const parsed = parseEngineSimOptions({ kvEvents: json });
    expect(parsed).toMatchObject({
      ok: true,
      options: {
        kvEvents: {
          endpoint: 'tcp://*:5557',
          replayEndpoint: 'tcp://*:5558',
          bufferSteps: 10_000,
          topic: 'kv',
        },
      },
    });
    for (const off of ['{}', '{"enable_kv_cache_events":true,"publisher":"null"}']) {
      const without = parseEngineSimOptions({ kvEvents: off });
      expect(without.ok && 'kvEvents' in without.options).toBe(false);
    }
  });

  it("take vLLM's own flags", () => {
    const parsed = parseEngineSimOptions({
      dataParallelSize: '2',
      schedulingPolicy: 'priority',
      loraModules: ['a=/x', 'b=/y'],
      shutdownTimeout: '30',
      seed: '7',
    });
    expect(parsed).toMatchObject({
      ok: true,
      seed: 7,
      options: {
        dataParallelSize: 2,
        profile: { schedulingPolicy: 'priority' },
        vllm: {
          enableLora: true,
          loraModules: [
            { name: 'a', path: '/x' },
            { name: 'b', path: '/y' },
          ],
          shutdownTimeoutMs: 30_000,
        },
      },
    });
  });

  it("say how a vLLM's streams end at SIGTERM", () => {
    const parsed = parseEngineSimOptions({ termEnding: 'hang' });
    expect(parsed).toMatchObject({ ok: true, options: { vllm: { termEnding: 'hang' } } });
  });

  it.each([
    ['kvEvents', 'not json', '--kv-events-config'],
    ['kvEvents', '{"endpont":"tcp://*:1"}', '--kv-events-config'],
    ['kvEventsEncoding', 'xml', '--kv-events-encoding'],
    ['loraModules', 'nameless', '--lora-modules'],
    ['termEnding', 'softly', '--term-ending'],
    ['schedulingPolicy', 'lifo', '--scheduling-policy'],
    ['dataParallelSize', '0', '--data-parallel-size'],
    ['kind', 'other', '--kind'],
  ])('refuse %s %s', (key, value, flag) => {
    const parsed = parseEngineSimOptions({ [key]: value });
    expect(parsed.ok ? [] : parsed.problems.map((problem) => problem.split(':')[0])).toEqual([
      flag,
    ]);
  });

  it('are described each', () => {
    for (const { flags, description } of ENGINE_SIM_OPTIONS) {
      expect(flags).toMatch(/^--/);
      expect(description.length).toBeGreaterThan(10);
    }
  });
});
