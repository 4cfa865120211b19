// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { COUNTERS } from './checks-counters.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([COUNTERS]);
