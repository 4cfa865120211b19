// Events and effects of the cores as lines of the world's log: enough to tell two runs apart and to follow one by eye.

import type { AgentMessage, RouterMessage } from '../../shared/protocol/messages.ts';
import type { AgentEffect, AgentEvent } from '../../agent/events.ts';
import type { RouterEffect, RouterEvent } from '../../router/regional/events.ts';

export function describeRouterEvent(event: RouterEvent): string {
  if (event.kind === 'arrived') return `arrived ${event.request.id}`;
  if (event.kind === 'message') return `${event.link} ${describeMessage(event.message)}`;
  if ('lease' in event) return `${event.kind} ${event.lease}`;
  return 'link' in event ? `${event.kind} ${event.link}` : event.kind;
}

function describeMessage(message: AgentMessage | RouterMessage): string {
  const { kind } = message;
  if (kind === 'report') {
    const { replica, seq, ackedSeq, waitingPrefillMs } = message.report;
    return `report ${replica} ${seq} ${ackedSeq} ${waitingPrefillMs?.toFixed(6) ?? '?'}`;
  }
  return 'seq' in message ? `${kind} ${message.replica} ${message.seq}` : kind;
}

export function describeRouterEffect(effect: RouterEffect): string {
  if (effect.kind === 'attempt')
    return `attempt ${effect.attempt.lease} ${effect.attempt.target.replica}`;
  if (effect.kind === 'send') return describeMessage(effect.message);
  return effect.kind;
}

export function describeAgentEvent(event: AgentEvent): string {
  if (event.kind === 'message') return `${event.link} ${describeMessage(event.message)}`;
  if ('replica' in event) return `${event.kind} ${event.replica}`;
  return 'link' in event ? `${event.kind} ${event.link}` : event.kind;
}

export function describeAgentEffect(effect: AgentEffect): string {
  if (effect.kind === 'send') return describeMessage(effect.message);
  return 'replica' in effect ? `${effect.kind} ${effect.replica}` : effect.kind;
}
