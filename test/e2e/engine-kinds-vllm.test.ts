import { checkKind } from './kinds-checks.ts';
import { PROFILE } from './kinds-region.ts';

checkKind({
  kind: 'vllm',
  agentKind: null,
  engine: {},
  narrow: { profile: { ...PROFILE, maxQueuedRequests: 4 } },
  narrowFull: 4,
  onTerm: 'breaks',
  unknown: [],
  known: [
    ...(['kvUsageRatio', 'kvCapacityTokens', 'preemptionsTotal', 'waitingPrefillTokens'] as const),
    'running',
  ],
});
