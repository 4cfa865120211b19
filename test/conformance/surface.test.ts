// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { LOADING } from './checks-ends.ts';
import { METRICS } from './checks-metrics.ts';
import { STREAMS } from './checks-streams.ts';
import { SURFACE } from './checks-surface.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([LOADING, SURFACE, STREAMS, METRICS]);
