// A prompt's tokens at each candidate, and how many of them its KV cache should hold: columns of the weighing.

import { CHUNK_BYTES, type PromptChain } from '../../shared/model/prompt.ts';
import { PromptMeter } from '../policy/tokens.ts';
import { FIGURE } from './core-roster.ts';
import type { RegionalState, RequestState } from './core-state.ts';
import { COLUMN, COLUMNS, COLUMNS_SUMMED, type Weighing } from './core-weighing.ts';

/** Elements of a list prompt that are looked up in the index; the rest count as uncached. */
const PROMPTS_MATCHED = 64;

export function measurePrompts(state: RegionalState, request: RequestState): void {
  const { prompts } = request.request;
  if (prompts.length !== 1) state.weighing.clearColumns();
  for (let p = 0; p < prompts.length; p += 1) measurePrompt(state, request, p);
}

function measurePrompt(state: RegionalState, request: RequestState, p: number): void {
  const { index, weighing } = state;
  const { prompts } = request.request;
  const chain = prompts[p];
  if (chain === undefined) return;
  const { columns, places, count } = weighing;
  const { targets, figures, slots } = request.pool.roster;
  const meter = new PromptMeter(chain);
  const limits = request.pool.roster.limits(request.engineModel);
  const write = prompts.length === 1 ? setPrompt : addPrompt;
  const depths = p < PROMPTS_MATCHED ? index.walk(chain) : null;
  if (depths !== null && prompts.length === 1 && meter.isText) {
    measureText(state, request, { chain, depths, meter });
    return;
  }
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const slot = slots[place] as number;
    const chunks = depths === null ? 0 : (depths[slot] as number);
    meter.holds(chunks, depths === null ? null : index.leafAt(slot, chain, chunks));
    if (meter.hasParts) meter.partTokens = meter.partTokensOf(weighing.target(k).report);
    meter.contextTokens = limits[place] as number;
    meter.read(figures, FIGURE.bytesPerToken * targets.length + place, targets.length);
    write(columns, k, meter.found);
  }
}

/**
 * The same for one prompt of text alone: most targets hold some chunks of it and no leaf, and what `PromptMeter` and
 * `setPrompt` then say is written down here in one piece, which takes half the time.
 */
function measureText(
  { index, weighing }: RegionalState,
  request: RequestState,
  prompt: { chain: PromptChain; depths: Int32Array; meter: PromptMeter },
): void {
  const { chain, depths, meter } = prompt;
  const { columns, places, count } = weighing;
  const { targets, figures, slots } = request.pool.roster;
  const limits = request.pool.roster.limits(request.engineModel);
  const [, , , promptTokens, matchedTokens, cachedTokens, contexts] = columns as SevenColumns;
  const { bytes } = chain;
  const { length } = targets;
  const bytesPerToken = FIGURE.bytesPerToken * length;
  const blockTokens = FIGURE.blockTokens * length;
  const kappa = FIGURE.kappa * length;
  let last = -1;
  let ends = false;
  for (let k = 0; k < count; k += 1) {
    const place = places[k] as number;
    const slot = slots[place] as number;
    const chunks = depths[slot] as number;
    if (chunks !== last) {
      last = chunks;
      ends = index.hasLeaf(chain, chunks);
    }
    const match = ends ? index.leafAt(slot, chain, chunks) : null;
    if (match !== null) {
      meter.holds(chunks, match);
      meter.contextTokens = limits[place] as number;
      meter.read(figures, bytesPerToken + place, length);
      setPrompt(columns, k, meter.found);
      continue;
    }
    const perToken = figures[bytesPerToken + place] as number;
    const block = figures[blockTokens + place] as number;
    const asked = Math.floor(bytes / perToken + 0.5);
    const tokens = Math.max(1, Math.min(asked, limits[place] as number));
    const matched = Math.min(tokens - 1, Math.floor((chunks * CHUNK_BYTES) / perToken));
    const share = figures[kappa + place] as number;
    const kept = Math.floor(Math.floor(matched / block) * block * share);
    const cached = Math.min(kept, tokens - 1);
    const uncached = tokens - cached;
    promptTokens[k] = tokens;
    matchedTokens[k] = matched;
    cachedTokens[k] = cached;
    contexts[k] = uncached * (cached + uncached / 2);
  }
}

function setPrompt(columns: Weighing['columns'], k: number, found: Float64Array): void {
  const prompt = found[0] as number;
  const cached = found[2] as number;
  const uncached = prompt - cached;
  (columns[COLUMN.promptTokens] as Float64Array)[k] = prompt;
  (columns[COLUMN.matchedTokens] as Float64Array)[k] = found[1] as number;
  (columns[COLUMN.cachedTokens] as Float64Array)[k] = cached;
  (columns[COLUMN.context] as Float64Array)[k] = uncached * (cached + uncached / 2);
}

type Column = Float64Array;
/** By `COLUMN`. */
type SevenColumns = [Column, Column, Column, Column, Column, Column, Column];

const ONE: Weighing['columns'] = Array.from({ length: COLUMNS }, () => new Float64Array(1));

function addPrompt(columns: Weighing['columns'], k: number, found: Float64Array): void {
  setPrompt(ONE, 0, found);
  for (let c = COLUMNS_SUMMED; c < COLUMNS; c += 1) {
    const column = columns[c] as Float64Array;
    column[k] = (column[k] as number) + (ONE[c]?.[0] as number);
  }
}
