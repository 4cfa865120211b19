// A server with OpenAI's API and nothing else that an agent could read.

import { checkKind } from './kinds-checks.ts';

checkKind({
  kind: 'generic',
  agentKind: 'generic',
  engine: {},
  narrow: null,
  narrowFull: 0,
  onTerm: 'breaks',
  unknown: [
    'kvUsageRatio',
    'kvCapacityTokens',
    'preemptionsTotal',
    'preemptionsPerMin',
    'blockTokens',
  ],
  known: [],
});
