// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { KV_EVENTS } from './checks-kv-events.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([KV_EVENTS]);
