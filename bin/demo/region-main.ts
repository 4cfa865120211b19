// One region of the demo in a process of its own, so that it can die alone: simulated engines, an agent beside each, a router.
// Started by the demo, which it tells its ports; it ends when the demo says so, or is gone.

import { agentOptions } from '../cli/agent-options.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { processLog, processRuntime } from '../cli/process.ts';
import { routerOptions } from '../cli/router-options.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import { MODEL, regionOverlays } from './fleet.ts';

export interface RegionTask {
  readonly region: string;
  /** Of the global router, at its distance. */
  readonly globalUrl: string;
  readonly replicas: number;
  /** What flags of the demo change. */
  readonly overlays: readonly Overlay[];
}

/** What the process tells the demo, once. */
export interface RegionPorts {
  readonly clientsPort: number;
  readonly tierPort: number;
}

const task = JSON.parse(process.argv[2] ?? '{}') as RegionTask;
// A terminal tells them to every process: the demo decides here.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => undefined);

const profile = engineProfile('demo');
if (profile === null) throw new Error('the demo profile is gone');
const { startEngineServer } = await import('../../sim/engine/http/server.ts');
const { startRegionalRouter } = await import('../../router/regional/start.ts');
const { startAgent } = await import('../../agent/start.ts');

const { region, globalUrl, replicas, overlays } = task;
const config = (urls: readonly string[]) =>
  loadOrExplain(null, [...regionOverlays(region, globalUrl, urls), ...overlays]);
const runtime = processRuntime(processLog(config(['http://127.0.0.1:1']).log));
const options = { host: '127.0.0.1', port: 0, model: MODEL, profile };
const engines = await Promise.all(
  Array.from({ length: replicas }, () => startEngineServer(options, runtime)),
);
const own = config(engines.map(({ url }) => url));
const router = await startRegionalRouter(routerOptions(own), runtime);
const { agent } = own;
if (agent === undefined) throw new Error('a region of the demo always has agents');
const beside = agentOptions(agent, own);
const routers = [`ws://127.0.0.1:${router.linksPort}`];
const agents = await Promise.all(
  beside.engines.map((engine) => startAgent({ ...beside, engines: [engine], routers }, runtime)),
);

let ended = false;
async function end(drain: boolean): Promise<void> {
  if (ended) return;
  ended = true;
  if (drain) await router.drain();
  await Promise.all(agents.map((each) => each.close()));
  await router.close();
  await Promise.all(engines.map((engine) => engine.close()));
  process.exit(0);
}
process.on('message', () => void end(true));
process.on('disconnect', () => void end(false));
const { clientsPort, tierPort } = router;
process.send?.({ clientsPort, tierPort: tierPort ?? 0 } satisfies RegionPorts);
