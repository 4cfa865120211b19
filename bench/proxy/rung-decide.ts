// The second rung of the ladder: the product's router with everything between listener and engines (parse, canonical
// form, hashes, decision, index, scan of the answer, deadlines), but its log off and its metrics counting nothing, and its
// agents as silent as can be set.
//
//   node bench/proxy/rung-decide.ts PORT LINKS-PORT
//
// It is started as one worker of several is: a worker's parent accepts its connections and keeps its metrics. Here the
// connections are accepted in this process, and the metrics are kept by nobody. `ready N` on stdout: N replicas are.

import { createServer, type Socket } from 'node:net';
import type { MetricName } from '../../router/regional/metrics.ts';
import { startRegionalRouter } from '../../router/regional/start.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { processRandom } from '../../shared/runtime/entropy.ts';
import type { ConnectionSource } from '../../shared/runtime/handed-connections.ts';
import { createLog } from '../../shared/runtime/log.ts';
import type { Metrics } from '../../shared/runtime/metrics.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { productOptions } from './product-options.ts';

const UNCOUNTED: Metrics<MetricName> = {
  add: () => undefined,
  observe: () => undefined,
  set: () => undefined,
  replace: () => undefined,
  text: async () => '',
  contentType: 'text/plain',
};

const LOOK_MS = 50;
const REPLICAS = 2;

const [clients = 0, links = 0] = process.argv.slice(2).map(Number);
const source: ConnectionSource = {
  port: clients,
  start(take: (socket: Socket) => void) {
    createServer({ noDelay: true }, take).listen(clients, '127.0.0.1');
  },
};
const router = await startRegionalRouter(
  productOptions({ clients, links }),
  {
    ...{ clock: systemClock, timers: systemTimers, random: processRandom() },
    log: createLog({ level: 'silent', readable: false }),
  },
  {
    sources: { clients: source, tier: null },
    metrics: UNCOUNTED,
    linkPorts: () => [links],
    claim: () => Promise.resolve(null),
  },
);

const look = setInterval(() => {
  const ready = router.status().pools.reduce((sum, pool) => sum + pool.ready, 0);
  if (ready < REPLICAS) return;
  console.log(`ready ${ready}`);
  clearInterval(look);
}, LOOK_MS);
