// What `npm run bench:engines` is asked for.

import { parseArgs } from 'node:util';
import { KV_TOKENS } from '../../test/engines/vllm.ts';
import { LOADS, QUICK, SEEDS, type Load } from './loads.ts';
import type { EngineKind } from './engines.ts';

export interface Options {
  readonly loads: readonly Load[];
  /** Names of arms; null: all, in a quick run Spillway and the best that is there. */
  readonly arms: readonly string[] | null;
  readonly seeds: readonly number[];
  readonly engines: EngineKind;
  /** Settings of Spillway's routers that are tried. */
  readonly settings: readonly string[];
  /** KV cache of each engine. */
  readonly kvTokens: number;
  readonly longWarmUp: boolean;
  /** Cells of the same key that are there: taken, or measured again, or (null) a reason to ask. */
  readonly stored: 'take' | 'renew' | null;
  /** Tables of what is there; measures nothing. */
  readonly reportOnly: boolean;
  readonly quick: boolean;
  readonly json: boolean;
  readonly strict: boolean;
  /** No cell begins that would not end in time. */
  readonly limitMs: number;
}

/** `--max-model-len` of the engines. */
const LEAST_KV_TOKENS = 16_384;

export const USAGE = `usage: npm run bench:engines -- [--quick] [--loads A,B] [--arms A,B] [--seeds N | --seeds A,B]
       [--resume | --fresh | --report] [--minutes N] [--kv-tokens N] [--long-warm-up] [--set PATH=VALUE…]
       [--json] [--strict] [--engine-sim]

--quick: one load, Spillway and one other arm, three seeds: under 8 minutes once engines are up.
--seeds: how many, or which ones. --minutes: begin no cell that would not end in this time.
--resume: take what is measured of this code and load and not marked as doubtful; --fresh: measure it again;
--report: measure nothing, show what there is. --engine-sim: simulated engines, to develop the benchmark: no result.
--kv-tokens: KV cache of each engine, ${KV_TOKENS} if not said. --long-warm-up: half a minute, where a router's first seconds
are not what is asked about.
--set: a setting of Spillway's routers that is tried, e.g. router.routing.holdMs=80; said with every result.
--json: one object on stdout, tables on stderr. --strict: missed aims and arms that cannot run make the status 1.
Loads: ${LOADS.map(({ name }) => name).join(', ')}.`;

/** A string says what cannot be read; null asks for help. */
export function parseOptions(
  args: readonly string[],
  arms: readonly string[],
): Options | string | null {
  const flags = readFlags(args);
  if (typeof flags === 'string') return flags;
  if (flags.help) return null;
  const names = list(flags.loads) ?? (flags.quick ? [QUICK.load] : LOADS.map(({ name }) => name));
  const loads = LOADS.filter(({ name }) => names.includes(name));
  const unknownLoad = names.find((name) => !LOADS.some((load) => load.name === name));
  if (unknownLoad !== undefined) return `no load is called ${unknownLoad}`;
  const chosen = list(flags.arms);
  const unknownArm = chosen?.find((name) => !arms.includes(name));
  if (unknownArm !== undefined) return `no arm is called ${unknownArm}`;
  const seeds = seedsOf(flags.seeds ?? String(flags.quick ? QUICK.seeds : SEEDS));
  if (seeds === null) return `no seeds: ${flags.seeds}`;
  const minutes = flags.minutes === undefined ? Infinity : Number(flags.minutes);
  if (!(minutes > 0)) return `no number of minutes: ${flags.minutes}`;
  const kvTokens = flags['kv-tokens'] === undefined ? KV_TOKENS : Number(flags['kv-tokens']);
  // The longest prompt must fit, else an engine does not start.
  if (!(kvTokens >= LEAST_KV_TOKENS)) return `no KV cache: ${flags['kv-tokens']}`;
  if ([flags.resume, flags.fresh, flags.report].filter(Boolean).length > 1) {
    return '--resume, --fresh and --report exclude each other';
  }
  return {
    loads,
    arms: chosen,
    seeds,
    settings: flags.set,
    kvTokens,
    longWarmUp: flags['long-warm-up'],
    engines: flags['engine-sim'] ? 'sim' : 'vllm',
    stored: flags.fresh ? 'renew' : flags.resume || flags.report ? 'take' : null,
    reportOnly: flags.report,
    quick: flags.quick,
    json: flags.json,
    strict: flags.strict,
    limitMs: minutes * 60_000,
  };
}

interface Flags {
  readonly quick: boolean;
  readonly loads?: string | undefined;
  readonly arms?: string | undefined;
  readonly seeds?: string | undefined;
  readonly minutes?: string | undefined;
  readonly set: readonly string[];
  readonly 'kv-tokens'?: string | undefined;
  readonly 'long-warm-up': boolean;
  readonly resume: boolean;
  readonly fresh: boolean;
  readonly report: boolean;
  readonly json: boolean;
  readonly strict: boolean;
  readonly 'engine-sim': boolean;
  readonly help: boolean;
}

function readFlags(args: readonly string[]): Flags | string {
  const flag = { type: 'boolean', default: false } as const;
  try {
    return parseArgs({
      args: [...args],
      options: {
        quick: flag,
        loads: { type: 'string' },
        arms: { type: 'string' },
        seeds: { type: 'string' },
        minutes: { type: 'string' },
        'kv-tokens': { type: 'string' },
        'long-warm-up': flag,
        set: { type: 'string', multiple: true, default: [] },
        resume: flag,
        fresh: flag,
        report: flag,
        json: flag,
        strict: flag,
        'engine-sim': flag,
        help: { ...flag, short: 'h' },
      },
    }).values;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function list(text: string | undefined): readonly string[] | null {
  return text === undefined ? null : text.split(',').map((name) => name.trim());
}

/** `8` is the first eight; `3,7` and `3,` are these. */
function seedsOf(text: string): readonly number[] | null {
  const numbers = text
    .split(',')
    .filter((part) => part !== '')
    .map(Number);
  if (numbers.length === 0 || numbers.some((n) => !Number.isInteger(n) || n < 1)) return null;
  const [first = 0] = numbers;
  return text.includes(',') ? numbers : Array.from({ length: first }, (_, index) => index + 1);
}
