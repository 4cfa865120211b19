// The answer to `x-spillway-explain: 1`: the decision that was carried out, in one header. The candidates that weigh least
// in it go first where it would become too long for the buffers of proxies.

import type { Candidate, Decision } from '../../shared/model/decision.ts';

/** Bytes. Proxies refuse answers whose headers exceed 4 to 8 KiB together. */
export const EXPLAIN_BYTES = 2_048;

export function explainHeader(decision: Decision): string {
  return fitting(decision.candidates.length, (shown) => brief(decision, shown));
}

/** The longest of what `brief` says with so many of `candidates` that is short enough. */
export function fitting(candidates: number, brief: (shown: number) => object): string {
  for (let shown = candidates; ; shown -= 1) {
    const text = asciiJson(brief(shown));
    if (text.length <= EXPLAIN_BYTES || shown === 0) return text;
  }
}

function brief(decision: Decision, shown: number): object {
  const { kind, reason, target, candidates } = decision;
  const left = candidates.length - shown;
  return {
    kind,
    reason,
    ...(target === null ? {} : { target: `${target.replica}#${target.rank}` }),
    candidates: candidates.slice(0, shown).map(briefCandidate),
    ...(left === 0 ? {} : { more: left }),
  };
}

function briefCandidate(candidate: Candidate): object {
  const { replica, rank } = candidate.target;
  const target = `${replica}#${rank}`;
  if (candidate.removed !== null) return { target, removed: candidate.removed };
  return {
    target,
    costMs: tenth(candidate.costMs),
    waitMs: tenth(candidate.waitMs),
    prefillMs: tenth(candidate.prefillMs),
    ttftMs: tenth(candidate.predictedTtftMs),
    tokens: candidate.promptTokens,
    cached: candidate.cachedTokens,
    ...(candidate.full ? { full: true } : {}),
    ...(candidate.kvRoom === null ? {} : { kv: candidate.kvRoom.state }),
    p: Math.round(candidate.drawProbability * 1_000) / 1_000,
  };
}

/** To a tenth. */
export function tenth(value: number | null): number | null {
  return value === null ? null : Math.round(value * 10) / 10;
}

/** Names may be in any script; a header may not. */
function asciiJson(value: object): string {
  return JSON.stringify(value).replaceAll(
    /[\u007f-\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
