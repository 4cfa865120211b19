// What one agent of the region takes: its core's events, and the frames that it reads and writes.

import {
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../../shared/protocol/codec.ts';
import type { AgentEffect, AgentEvent } from '../../agent/events.ts';
import type { AgentHost } from '../../sim/world/agent-host.ts';

export class AgentMeter {
  readonly #ms: number[] = [];

  /** Measures the agent's core from now on, in place. */
  constructor(agent: AgentHost | undefined) {
    const core = agent?.core ?? null;
    if (core === null) return;
    const handle = core.handle.bind(core);
    core.handle = (event: AgentEvent, nowMs: number): AgentEffect[] => {
      const frame = event.kind === 'message' ? encodeRouterMessage(event.message) : null;
      const begun = performance.now();
      if (frame !== null) decodeRouterMessage(frame);
      const effects = handle(event, nowMs);
      core.nextWakeMs();
      for (const effect of effects) if (effect.kind === 'send') encodeAgentMessage(effect.message);
      this.#ms.push(performance.now() - begun);
      return effects;
    };
  }

  /** Events, and ms of the median one: what a busy machine adds to single ones is left out. */
  get figures(): { events: number; eventMsP50: number } {
    const sorted = this.#ms.toSorted((a, b) => a - b);
    return { events: sorted.length, eventMsP50: sorted[sorted.length >> 1] ?? 0 };
  }
}
