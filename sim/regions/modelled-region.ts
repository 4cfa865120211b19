// A modelled region as global routers reach it: its routers take requests in turn, and an answer ends with its first token.

import type { RegionId } from '../../shared/model/ids.ts';
import type { AttemptResult } from '../../router/policy/attempt-result.ts';
import type { Timeline } from '../world/timeline.ts';
import type { ReachedRegion, RegionAsk } from './global-host.ts';
import type { RegionModel, RegionWork } from './region-model.ts';
import type { RegionRouter } from './region-router.ts';

export class ModelledRegion implements ReachedRegion {
  readonly id: RegionId;
  readonly rttMs: number;
  readonly model: RegionModel;
  readonly routers: readonly RegionRouter[];
  readonly #timeline: Timeline;
  #turn = 0;

  constructor(
    timeline: Timeline,
    parts: {
      readonly id: RegionId;
      readonly rttMs: number;
      readonly model: RegionModel;
      readonly routers: readonly RegionRouter[];
    },
  ) {
    this.#timeline = timeline;
    this.id = parts.id;
    this.rttMs = parts.rttMs;
    this.model = parts.model;
    this.routers = parts.routers;
  }

  take({ attempt, asked, from, ...ask }: RegionAsk): () => void {
    this.#turn += 1;
    const at = this.#turn % this.routers.length;
    const router = this.routers[at];
    const cameMs = this.#timeline.nowMs;
    const { conversation, promptTokens, answerTokens } = asked;
    const work: RegionWork = {
      ...{ conversation, promptTokens, answerTokens },
      firstToken: (cachedTokens) => {
        if (attempt.away && attempt.conversation !== null) {
          const sinceMs = cameMs - attempt.awayForMs;
          router?.servedAway(attempt.conversation, promptTokens + answerTokens, sinceMs);
        }
        ask.firstToken();
        const usage = { promptTokens, cachedTokens, completionTokens: answerTokens };
        ask.ended({ kind: 'complete', usage }, true);
      },
      failed: () => ask.ended(DEAD, false),
      refused: (retryAfterMs) =>
        ask.ended({ kind: 'backPressure', status: 429, retryAfterMs }, false),
    };
    router?.arrived(from, attempt.seq);
    this.model.take(at, work);
    return () => this.model.abandon(work);
  }
}

const DEAD: AttemptResult = { kind: 'connectFailed', detail: 'the region is dead' };
