// The simulated engine keeps the rules of this theme; `npm run test:engines` holds a real vLLM to the same ones.

import { PRESSURE } from './checks-pressure.ts';
import { LORA } from './checks-lora.ts';
import { holdSimulated } from './on-simulated.ts';

holdSimulated([PRESSURE, LORA]);
