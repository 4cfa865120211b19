import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LOAD_STAGES, LoadLog } from './load-log.ts';

/** What is known after each line that told something new. */
function told(lines: readonly string[]): string[] {
  const log = new LoadLog();
  const said: string[] = [];
  for (const line of lines) {
    log.line(line);
    const { progress } = log;
    if (progress === null) continue;
    const ratio = progress.ratio === null ? '' : ` ${Math.round(progress.ratio * 100)}`;
    if (said.at(-1) !== progress.stage + ratio) said.push(progress.stage + ratio);
  }
  return said;
}

function recorded(name: string): string[] {
  const file = new URL(`../../test/fixtures/load-logs/${name}`, import.meta.url);
  return readFileSync(file, 'utf8').split(/\r\n|\r|\n/);
}

describe('the log of a real vLLM 0.32.0', () => {
  test('with weights in three files and compilation', () => {
    expect(told(recorded('vllm-0.32.0.log'))).toEqual([
      'starting',
      'weights 0',
      'weights 100',
      'compiling',
      'compiling 100',
      'cache',
      'warming',
      'serving 100',
    ]);
  });

  test('without weights on disk, without compilation', () => {
    expect(told(recorded('vllm-0.32.0-eager.log'))).toEqual([
      'starting',
      'weights 0',
      'cache',
      'warming',
      'serving 100',
    ]);
  });
});

describe('the lines of a start', () => {
  const cases: [string, string[], string[]][] = [
    [
      'vLLM on a GPU: weights, compilation, graphs',
      [
        '(APIServer pid=1) INFO 02-16 14:52:40 [api_server.py:1896] vLLM API server version 0.15.1',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:05 [gpu_model_runner.py:3920] Starting to load model Qwen/Qwen3-8B...',
        '(EngineCore_DP0 pid=280) Loading safetensors checkpoint shards:   0% Completed | 0/5 [00:00<?, ?it/s]',
        '(EngineCore_DP0 pid=280) Loading safetensors checkpoint shards:  40% Completed | 2/5 [00:03<00:04,  1.51s/it]',
        '(EngineCore_DP0 pid=280) Loading safetensors checkpoint shards: 100% Completed | 5/5 [00:07<00:00,  1.50s/it]',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:13 [default_loader.py:291] Loading weights took 7.56 seconds',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:14 [gpu_model_runner.py:4017] Model loading took 15.27 GiB memory and 9.108 seconds',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:19 [backends.py:703] Dynamo bytecode transform time: 4.41 s',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:25 [monitor.py:34] torch.compile takes 9.85 s in total',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:26 [gpu_worker.py:356] Available KV cache memory: 26.54 GiB',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:26 [kv_cache_utils.py:1307] GPU KV cache size: 217,376 tokens',
        'Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]',
        'Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|####      | 23/51 [00:02<00:02,  9.8it/s]',
        'Capturing CUDA graphs (decode, FULL):  20%|##        | 7/35 [00:00<00:02, 10.0it/s]',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:32 [gpu_model_runner.py:5021] Graph capturing finished in 6 secs, took 0.61 GiB',
        '(EngineCore_DP0 pid=280) INFO 02-16 14:53:32 [core.py:273] init engine (profile, create kv cache, warmup model) took 18.21 seconds',
        '(APIServer pid=1) INFO 02-16 14:53:34 [api_server.py:1351] Starting vLLM API server 0 on http://0.0.0.0:8000',
      ],
      [
        'starting',
        'weights 0',
        'weights 40',
        'weights 100',
        'compiling',
        'compiling 100',
        'cache',
        'graphs 0',
        'graphs 45',
        'graphs 100',
        'warming',
        'serving 100',
      ],
    ],
    [
      'SGLang: several ranks in one log never go back',
      [
        "[2026-02-26 05:20:01] server_args=ServerArgs(model_path='x', tokenizer_path='x')",
        '[2026-02-26 05:20:20 TP7] Load weight begin. avail mem=283.62 GB',
        '[2026-02-26 05:20:20 TP3] Load weight begin. avail mem=283.48 GB',
        'Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:04<00:04,  2.1s/it]',
        '[2026-02-26 05:20:31 TP3] Load weight end. elapsed=11.1 s, type=LlamaForCausalLM, avail mem=176.33 GB',
        '[2026-02-26 05:20:32 TP3] KV Cache is allocated. #tokens: 3262823, KV size: 186.77 GB',
        '[2026-02-26 05:20:32 TP7] Load weight begin. avail mem=283.62 GB',
        '[2026-02-26 05:20:33 TP3] Capture cuda graph begin. This can take up to several minutes. avail mem=3.72 GB',
        'Capturing batches (bs=8 avail_mem=1.72 GB):  25%|##5       | 1/4 [00:18<00:00,  4.57s/it]',
        '[2026-02-26 05:21:02 TP3] Capture cuda graph end. Time elapsed: 29.12 s. mem usage=3.97 GB. avail mem=0.76 GB.',
        '[2026-02-26 05:21:05] INFO:     Application startup complete.',
        '[2026-02-26 05:21:08] The server is fired up and ready to roll!',
      ],
      [
        'starting',
        'weights 0',
        'weights 50',
        'weights 100',
        'cache',
        'graphs 0',
        'graphs 25',
        'graphs 100',
        'warming',
        'serving 100',
      ],
    ],
    [
      'TGI: download, shards, warm-up',
      [
        '2024-09-03T04:36:57.500000Z  INFO text_generation_launcher: Args {',
        '2024-09-03T04:36:57.507198Z  INFO download: text_generation_launcher: Starting check and download process for m',
        '2024-09-03T04:37:08.928000Z  INFO text_generation_launcher: Download: [1/4] -- ETA: 0:00:21',
        '2024-09-03T04:37:30.928000Z  INFO text_generation_launcher: Download: [3/4] -- ETA: 0:00:07',
        '2024-09-03T04:37:38.000000Z  INFO download: text_generation_launcher: Successfully downloaded weights for m',
        '2024-09-03T04:37:38.000000Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0',
        '2024-09-03T04:37:48.000000Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=0',
        '2024-09-03T04:38:06.594424Z  INFO shard-manager: text_generation_launcher: Shard ready in 28.9s rank=0',
        '2024-09-03T04:38:09.593469Z  INFO text_generation_launcher: Starting Webserver',
        '2024-09-03T04:38:09.663104Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model',
        '2024-09-03T04:38:19.000000Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected',
      ],
      [
        'starting',
        'downloading 0',
        'downloading 25',
        'downloading 75',
        'downloading 100',
        'weights 0',
        'weights 100',
        'warming',
        'serving 100',
      ],
    ],
    [
      'llama.cpp',
      [
        'build: 6469 (a1b2c3d) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu',
        'main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 7',
        'main: loading model',
        'load_tensors: loading model tensors, this can take a while... (mmap = true)',
        'common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)',
        'main: model loaded',
        'main: server is listening on http://127.0.0.1:8080 - starting the main loop',
      ],
      ['starting', 'weights 0', 'warming', 'serving 100'],
    ],
    [
      'a start that fails',
      [
        '(APIServer pid=1) INFO 02-16 14:52:40 [api_server.py:1896] vLLM API server version 0.15.1',
        'Loading safetensors checkpoint shards:  60% Completed | 3/5 [00:03<00:04,  1.51s/it]',
        'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.',
        '(EngineCore_DP0 pid=280) ERROR 02-16 14:53:32 [core.py:1231] EngineCore failed to start.',
      ],
      ['starting', 'weights 60', 'failed'],
    ],
    [
      'and the next one in the same log, which begins anew',
      [
        'EngineCore failed to start.',
        '(APIServer pid=1) INFO 02-16 14:52:40 [api_server.py:1896] vLLM API server version 0.15.1',
        'Loading safetensors checkpoint shards:  20% Completed | 1/5 [00:03<00:04,  1.51s/it]',
      ],
      ['failed', 'starting', 'weights 20'],
    ],
    [
      'a start after service, without opening words',
      ['main: server is listening on http://127.0.0.1:8080', 'main: loading model'],
      ['serving 100', 'weights 0'],
    ],
    [
      'what an engine in service compiles and captures is no start',
      [
        'Starting vLLM server on http://127.0.0.1:8000',
        'torch.compile takes 1.2 s in total',
        'Capturing CUDA graphs (decode, FULL):  20%|##        | 7/35',
      ],
      ['serving 100'],
    ],
  ];
  test.each(cases)('%s', (_, lines, expected) => {
    expect(told(lines)).toEqual(expected);
  });
});

describe('any other line', () => {
  test('tells nothing: prompts, requests and settings that mention these words', () => {
    const log = new LoadLog();
    const lines = [
      '',
      'INFO: 127.0.0.1:58310 - "POST /v1/completions HTTP/1.1" 200 OK',
      'Enforce eager set, disabling torch.compile and CUDAGraphs. This is equivalent to setting -cc.mode=none',
      'Engine 000: Avg prompt throughput: 40.0 tokens/s, Running: 0 reqs, GPU KV cache usage: 0.1%',
      'main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 7',
    ];
    expect(lines.map((line) => log.line(line))).toEqual(lines.map(() => false));
    expect(log.progress).toBeNull();
  });

  test('ends nothing, however long or odd; ratios stay between 0 and 1', () => {
    const word = fc.constantFrom(
      'Loading safetensors checkpoint shards: ',
      'Capturing CUDA graphs ',
      'Download: [',
      '0/0]',
      '7/3]',
      '250%',
      'x'.repeat(5_000),
      ' ',
    );
    fc.assert(
      fc.property(fc.array(fc.array(fc.oneof(word, fc.string()), { maxLength: 6 })), (lines) => {
        const log = new LoadLog();
        for (const line of lines) log.line(line.join(''));
        const { progress } = log;
        if (progress === null) return;
        expect(LOAD_STAGES).toContain(progress.stage);
        expect(progress.ratio ?? 0).toBeGreaterThanOrEqual(0);
        expect(progress.ratio ?? 0).toBeLessThanOrEqual(1);
      }),
    );
  });
});
