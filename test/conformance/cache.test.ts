// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { CACHE } from './checks-cache.ts';
import { LEAVING } from './checks-leaving.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([CACHE, LEAVING]);
