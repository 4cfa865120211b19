// Why a target cannot take a request at all. Every removal has one reason: the first that applies,
// from what the target is to what it has lately done.

import type { FilterReason } from '../../shared/model/decision.ts';
import type { Phase } from '../../shared/model/phase.ts';
import type { ModelInfo } from '../../shared/model/report.ts';

/** Whether reports of a target are coming, and if not, whether it is used all the same. */
export const LINK_STATES = ['fresh', 'stale', 'static', 'out'] as const;
export type LinkState = (typeof LINK_STATES)[number];

export interface FilterView {
  /** Null before the first report. */
  readonly phase: Phase | null;
  readonly models: readonly ModelInfo[];
  /** It runs none of the revisions that are asked for, or does not say. Absent: it does, or none is. */
  readonly otherRevision?: boolean;
  /** Degraded for slowness and among the third of its pool that stays out. */
  readonly slow: boolean;
  readonly link: LinkState;
  /** Without an agent to vouch for it, the target failed us. */
  readonly down: boolean;
  readonly breakerOpen: boolean;
  readonly paused: boolean;
  readonly excluded: boolean;
  /** Fewest tokens that the prompt can have here; null when unknown. */
  readonly leastPromptTokens: number | null;
}

/** Null when the target can take it. `engineModel` is the name that the engine knows. */
export function filterTarget(view: FilterView, engineModel: string): FilterReason | null {
  const limit = contextLimit(view.models, engineModel);
  if (view.phase !== null && limit === undefined) return 'model';
  if (view.otherRevision === true) return 'revision';
  if (view.link === 'out') return 'stale';
  if (view.slow) return 'slow';
  if (view.phase !== 'ready') return 'phase';
  if (view.down) return 'static_down';
  if (view.excluded) return 'excluded';
  if (view.breakerOpen) return 'breaker';
  if (view.paused) return 'paused';
  const tokens = view.leastPromptTokens;
  if (typeof limit === 'number' && tokens !== null && tokens > limit) return 'context_length';
  return null;
}

/**
 * Tokens, null where unknown, undefined where the model is not served. No list at all: taken on
 * trust.
 */
export function contextLimit(
  models: readonly ModelInfo[],
  name: string,
): number | null | undefined {
  if (models.length === 0) return null;
  for (const model of models) {
    if (model.id === name || model.loras.includes(name)) return model.maxModelLen;
  }
  return undefined;
}
