// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { RANKS_THEME } from './checks-ranks.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([RANKS_THEME], 2);
