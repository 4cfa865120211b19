import { checkKind } from './kinds-checks.ts';
import { PROFILE } from './kinds-region.ts';

checkKind({
  kind: 'llamacpp',
  agentKind: null,
  engine: { kind: 'llamacpp', metrics: true, profile: { ...PROFILE, maxNumSeqs: 4 } },
  narrow: null,
  narrowFull: 0,
  tooMuch: { promptTokens: 20_000 },
  onTerm: 'breaks',
  unknown: ['preemptionsTotal', 'preemptionsPerMin', 'kvUsageRatio'],
  absent: ['kvUsageRatio', 'preemptionsTotal', 'firstTokensTotal'],
  known: ['kvCapacityTokens', 'runningMax', 'waitingPrefillTokens', 'running'],
});
