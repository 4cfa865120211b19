import { checkKind } from './kinds-checks.ts';

checkKind({
  kind: 'vllm',
  agentKind: null,
  engine: {},
  narrow: null,
  narrowFull: 0,
  onTerm: 'breaks',
  unknown: [],
  known: [
    'kvUsageRatio',
    'kvCapacityTokens',
    'preemptionsTotal',
    'waitingPrefillTokens',
    'running',
  ],
});
