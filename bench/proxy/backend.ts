// The replicas of the proxy benchmark as a process of their own, to stand a proxy before by hand:
//
//   node bench/proxy/backend.ts PORT PORT

import { startReplica } from './replica.ts';

for (const port of process.argv.slice(2)) await startReplica(Number(port));
console.log('backend ready');
