import { checkKind } from './kinds-checks.ts';

checkKind({
  kind: 'sglang',
  agentKind: null,
  engine: { kind: 'sglang', metrics: true, cacheReport: true },
  narrow: { maxQueuedRequests: 1 },
  narrowFull: 1,
  onTerm: 'finishes',
  unknown: [],
  known: [
    'kvUsageRatio',
    'kvCapacityTokens',
    'preemptionsTotal',
    'waitingPrefillTokens',
    'running',
  ],
});
