// A region's own clients, who come to it without a global router: single requests at a rate.

import type { ModelledRegion } from './modelled-region.ts';
import type { RegionsWorld } from './world.ts';

export interface LocalLoad {
  /** Of what all replicas can compute together. */
  readonly ratio: number;
  readonly promptTokens: number;
}

export function loadLocally(world: RegionsWorld, region: ModelledRegion, load: LocalLoad): void {
  const { model } = region;
  const { replicas, tokensPerMs, routers } = model.shape;
  const perMs = (load.ratio * replicas * tokensPerMs) / load.promptTokens;
  let come = 0;
  const next = (): void => {
    world.timeline.after(-Math.log(1 - world.random.next()) / perMs, () => {
      come += 1;
      model.take(come % routers, {
        // Nobody else's: none goes on.
        conversation: -come,
        promptTokens: Math.round(load.promptTokens * (0.5 + world.random.next())),
        answerTokens: 0,
        firstToken: () => {},
        failed: () => {},
        refused: () => {},
      });
      next();
    });
  };
  if (perMs > 0) next();
}
