// How far an engine's start has come, from the lines of its log: no port and no metric tells.
//
//   starting → downloading → weights → compiling → cache → graphs → warming → serving
//                                        any of them → failed
//
// Several workers write into one log, so a stage never goes back within one start; the first line of a stage after
// `serving` or `failed`, and an engine's opening words, begin a start anew. A ratio is of its stage.
// Lines: vLLM 0.32 (test/fixtures/load-logs, recorded); SGLang 0.5, TGI 3 and llama.cpp as logs in public show them.

import type { LoadProgress } from '../../shared/model/report.ts';

export const LOAD_STAGES = [
  'starting',
  'downloading',
  'weights',
  'compiling',
  'cache',
  'graphs',
  'warming',
  'serving',
  'failed',
] as const;
export type LoadStage = (typeof LOAD_STAGES)[number];

interface Rule {
  readonly stage: LoadStage;
  /** Its first group is a percentage; with two groups, done and of how many. */
  readonly pattern: RegExp;
  /** What the line says of the stage where it has no figure. */
  readonly ratio: number | null;
}

/** A longer line is looked at up to here, characters. */
const LINE_MAX = 2_048;

/** The first that matches counts. */
const RULES: readonly Rule[] = [
  ...rules('failed', null, [
    /EngineCore failed to start|Engine core initialization failed|EngineCore encountered a fatal error/,
    /Scheduler hit an exception|Received sigquit from a child process/,
    /Shard \d+ failed to start|ShardCannotStart|DownloadError|WebserverFailed/,
    /error loading model|exiting due to model loading error/,
    /CUDA out of memory|OutOfMemoryError/,
  ]),
  ...rules('starting', null, [
    /vLLM API server version|[█▄▀]\s+version \d/,
    /server_args=ServerArgs\(/,
    /text_generation_launcher: Args/,
    /build: \d+ \([0-9a-f]+\) with/,
  ]),
  ...rules('serving', 1, [
    /Starting vLLM (API )?server/,
    /The server is fired up and ready to roll/,
    /text_generation_router\S*: .*\bConnected\b/,
    /server is listening on http/,
  ]),
  ...rules('graphs', 1, [/Graph capturing finished|Capture \w+ graph end/]),
  ...rules('graphs', 0, [
    /Capturing (?:CUDA graphs?|batches)[^%]*?(\d+)%/,
    /Capturing CUDA graphs?|Capture \w+ graph begin|Cuda Graphs are enabled/,
  ]),
  ...rules('warming', null, [
    /init engine \(.*\) took|Warming up model(?! for the compilation)/,
    /warming up the model with an empty run|main: model loaded|Application startup complete/,
  ]),
  ...rules('cache', null, [/KV cache size:|KV Cache is allocated|Available KV cache memory/]),
  ...rules('compiling', 1, [
    /torch\.compile (?:takes|took)|Warming up done|Autotuning process ends/,
  ]),
  ...rules('compiling', null, [
    /Dynamo bytecode transform time|Compiling a graph|Directly load the compiled graph/,
    /Warming up model for the compilation|Autotuning process starts/,
  ]),
  ...rules('weights', 1, [
    /Loading weights took|Model loading took|Load weight end|Shard ready in/,
  ]),
  ...rules('weights', 0, [
    /Loading \w+ checkpoint shards:\s+(\d+)%/,
    /Starting to load model|Load weight begin|Starting shard|main: loading model|load_(?:model|tensors): loading model/,
  ]),
  ...rules('weights', null, [/Waiting for shard to be ready/]),
  ...rules('downloading', 1, [
    /Successfully downloaded weights|Time spent downloading weights|Skipping download/,
  ]),
  ...rules('downloading', 0, [
    /Download: \[(\d+)\/(\d+)\]/,
    /Fetching \d+ files:\s+(\d+)%/,
    /Starting check and download process|Downloading weights/,
  ]),
];

const ORDER: Readonly<Record<LoadStage, number>> = Object.fromEntries(
  LOAD_STAGES.map((stage, at) => [stage, at]),
) as Record<LoadStage, number>;

export class LoadLog {
  private stage: LoadStage | null = null;
  private ratio: number | null = null;

  /** Null before any line has told. */
  get progress(): LoadProgress | null {
    return this.stage === null ? null : { stage: this.stage, ratio: this.ratio };
  }

  /** Takes one line, and says whether it told of the start. */
  line(text: string): boolean {
    const line = text.length > LINE_MAX ? text.slice(0, LINE_MAX) : text;
    for (const rule of RULES) {
      const match = rule.pattern.exec(line);
      if (match === null) continue;
      this.take(rule.stage, ratioOf(match) ?? rule.ratio);
      return true;
    }
    return false;
  }

  private take(stage: LoadStage, ratio: number | null): void {
    const { stage: before } = this;
    const over = before === 'serving' || before === 'failed';
    // One that serves warms up, compiles and captures now and then: that is no start.
    if (before === 'serving' && ORDER[stage] > ORDER.weights && stage !== 'failed') return;
    if (before !== null && !over && stage !== 'starting' && ORDER[stage] < ORDER[before]) return;
    if (stage !== before) {
      this.stage = stage;
      this.ratio = ratio;
    } else if (ratio !== null) this.ratio = Math.max(this.ratio ?? 0, ratio);
  }
}

function rules(stage: LoadStage, ratio: number | null, patterns: readonly RegExp[]): Rule[] {
  return patterns.map((pattern) => ({ stage, pattern, ratio }));
}

function ratioOf(match: RegExpExecArray): number | null {
  const [, first, second] = match;
  if (first === undefined) return null;
  const ratio = second === undefined ? Number(first) / 100 : Number(first) / Number(second);
  return Number.isFinite(ratio) ? Math.min(1, ratio) : null;
}
