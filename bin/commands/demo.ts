// `spillway demo` (`npm start`): three regions of simulated engines behind a global router, at a simulated distance from each
// other; or one region in one process: simulated engines, an agent beside each, a router.

import { Command, Option } from 'commander';
import type { RunningAgent } from '../../agent/start.ts';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import type { RunningEngine } from '../../sim/engine/http/server.ts';
import { engineProfile } from '../../sim/engine/profiles.ts';
import { agentOptions } from '../cli/agent-options.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { addSettings, COMMON, setOption, setOverlays, settingOverlays } from '../cli/options.ts';
import { endOnSignal, processLog, processRuntime, started } from '../cli/process.ts';
import { routerOptions } from '../cli/router-options.ts';
import { tryItLines } from '../cli/try-it.ts';
import { UsageError } from '../cli/usage-error.ts';
import { startDemoLoad } from '../demo/load.ts';
import { KEYS, MODEL } from '../demo/fleet.ts';
import { waitUntilReady } from '../demo/ready.ts';
import { Stage } from '../demo/stage.ts';
import { threeRegionsWords } from '../demo/words.ts';

/** Less to learn from, so that it is ready sooner; nobody else's KV is evicted by it. */
const SETTINGS = { revision: 'demo', calibrationBudgetTokens: 6_000 };

const EXAMPLES = `
The engines are simulated: their timing is that of a small GPU, their text means nothing. Each region
is a process of its own, so that it can die alone; keys of the three tenants are printed. With
--one-region there is no global router, and no key is needed.

Examples:
  $ npm start
  $ npm start -- --load
  $ spillway demo --one-region
  $ spillway demo --port 9000 --replicas 5`;

interface Flags {
  readonly port: string;
  readonly replicas?: string;
  readonly load: boolean;
  readonly oneRegion: boolean;
  readonly set?: readonly string[];
}

export function demoCommand(): Command {
  const command = new Command('demo')
    .description('run three regions of simulated engines behind a global router')
    .addOption(
      new Option('--port <port>', 'where clients connect').env('SPILLWAY_PORT').default('8080'),
    )
    .addOption(
      new Option(
        '--replicas <count>',
        'simulated engines of a region, 1 to 32 (default: 2, or 3 of one region)',
      ),
    )
    .addOption(
      new Option('--load', 'also send conversations, to have something to watch').default(false),
    )
    .addOption(new Option('--one-region', 'one region, in one process').default(false))
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, COMMON);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const port = wholeNumber('--port', flags.port, { least: 0, most: 65_535 });
  const given = flags.replicas ?? (flags.oneRegion ? '3' : '2');
  const replicas = wholeNumber('--replicas', given, { least: 1, most: 32 });
  const overlays = [...settingOverlays(command, COMMON), ...setOverlays(flags.set ?? [])];
  const task = { port, replicas, overlays, load: flags.load };
  return flags.oneRegion ? oneRegion(task) : threeRegions(task);
}

interface Task {
  readonly port: number;
  /** Of each region. */
  readonly replicas: number;
  readonly overlays: readonly Overlay[];
  readonly load: boolean;
}

async function threeRegions({ port, replicas, overlays, load }: Task): Promise<void> {
  const quiet = { path: ['log', 'level'], value: 'warn', source: 'demo' };
  const runtime = processRuntime(processLog(loadOrExplain(null, [quiet, ...overlays]).log));
  const stage = new Stage({ port, replicas, overlays, say: (line) => console.log(line) }, runtime);
  let stopLoad: (() => void) | null = null;
  endOnSignal(runtime.log, {
    drain: () => {
      stopLoad?.();
      return stage.drain();
    },
    close: () => stage.close(),
  });
  console.log(`three regions of ${replicas} simulated engines each are loading …`);
  await startedOrClosed(stage);
  for (const line of threeRegionsWords(stage)) console.log(line);
  const client = { base: stage.url, model: MODEL, key: KEYS.shop };
  if (load) stopLoad = startDemoLoad({ ...client, ...runtime });
}

/** Processes of regions end with a start that failed. */
async function startedOrClosed(stage: Stage): Promise<void> {
  try {
    await stage.start();
  } catch (error) {
    await stage.close();
    throw error;
  }
}

async function oneRegion({ port, replicas, overlays, load }: Task): Promise<void> {
  const runtime = processRuntime(
    processLog(loadOrExplain(null, [...demoOverlays(port, []), ...overlays]).log),
  );
  const engines = await startEngines(replicas, runtime);
  const urls = engines.map((engine) => engine.url);
  const config = loadOrExplain(null, [...demoOverlays(port, urls), ...overlays]);
  const { startRegionalRouter } = await import('../../router/regional/start.ts');
  const router = await started(startRegionalRouter(routerOptions(config), runtime), '--port');
  const agents = await startAgents(config, router.linksPort, runtime);
  let stopLoad: (() => void) | null = null;
  endOnSignal(runtime.log, {
    drain: () => {
      stopLoad?.();
      return router.drain();
    },
    close: async () => {
      await Promise.all(agents.map((agent) => agent.close()));
      await router.close();
      await Promise.all(engines.map((engine) => engine.close()));
    },
  });
  const base = `http://127.0.0.1:${router.clientsPort}`;
  console.log(`${replicas} simulated engines are loading …`);
  await waitUntilReady(base, runtime);
  for (const line of tryItLines({ host: '127.0.0.1', port: router.clientsPort, tls: false }, MODEL))
    console.log(line);
  if (load) stopLoad = startDemoLoad({ base, model: MODEL, key: null, ...runtime });
}

/** `urls` empty: before the engines' ports are known. */
function demoOverlays(port: number, urls: readonly string[]): Overlay[] {
  const engines = urls.map((url) => ({ url }));
  const agent = { engines, listen: '127.0.0.1:0', settings: SETTINGS };
  return [
    { path: ['router', 'clients', 'listen'], value: `127.0.0.1:${port}`, source: '--port' },
    { path: ['router', 'links', 'listen'], value: '127.0.0.1:0', source: 'demo' },
    { path: ['router', 'admin'], value: null, source: 'demo' },
    { path: ['models', MODEL], value: { pool: 'default' }, source: 'demo' },
    ...(urls.length === 0 ? [] : [{ path: ['agent'], value: agent, source: 'demo' }]),
  ];
}

async function startEngines(count: number, runtime: RoleRuntime): Promise<RunningEngine[]> {
  const { startEngineServer } = await import('../../sim/engine/http/server.ts');
  const profile = engineProfile('demo');
  if (profile === null) throw new Error('the demo profile is gone');
  const options = { host: '127.0.0.1', port: 0, model: MODEL, profile };
  return Promise.all(Array.from({ length: count }, () => startEngineServer(options, runtime)));
}

/** One agent beside each engine, as on real machines. */
async function startAgents(
  config: FleetConfig,
  linksPort: number,
  runtime: RoleRuntime,
): Promise<RunningAgent[]> {
  const { startAgent } = await import('../../agent/start.ts');
  if (config.agent === undefined) throw new Error('the demo always has agents');
  const options = agentOptions(config.agent, config);
  const routers = [`ws://127.0.0.1:${linksPort}`];
  return Promise.all(
    options.engines.map((engine) =>
      startAgent({ ...options, engines: [engine], routers }, runtime),
    ),
  );
}

function wholeNumber(
  flag: string,
  text: string,
  { least, most }: { readonly least: number; readonly most: number },
): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  throw new UsageError(`${flag} ${text}: must be a whole number from ${least} to ${most}`);
}
