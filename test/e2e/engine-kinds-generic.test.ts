// A server with OpenAI's API and nothing else that an agent could read.

import { checkKind } from './kinds-checks.ts';
import { PROFILE } from './kinds-region.ts';

checkKind({
  kind: 'generic',
  agentKind: 'generic',
  engine: {},
  narrow: { profile: { ...PROFILE, maxQueuedRequests: 4 } },
  narrowFull: 4,
  onTerm: 'breaks',
  unknown: [
    ...(['kvUsageRatio', 'kvCapacityTokens', 'preemptionsTotal', 'preemptionsPerMin'] as const),
    'blockTokens',
  ],
  known: [],
});
