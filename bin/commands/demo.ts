// `spillway demo` (`npm start`): a whole region in one process: simulated engines, an agent beside each, a router.

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
import { waitUntilReady } from '../demo/ready.ts';

const MODEL = 'demo-model';

/** Less to learn from, so that it is ready sooner; nobody else's KV is evicted by it. */
const SETTINGS = { revision: 'demo', calibrationBudgetTokens: 6_000 };

const EXAMPLES = `
No key is needed. The engines are simulated: their timing is that of a small GPU, their text means
nothing.

Examples:
  $ npm start
  $ npm start -- --load
  $ spillway demo --port 9000 --replicas 5`;

interface Flags {
  readonly port: string;
  readonly replicas: string;
  readonly load: boolean;
  readonly set?: readonly string[];
}

export function demoCommand(): Command {
  const command = new Command('demo')
    .description('run a region of simulated engines in one process')
    .addOption(
      new Option('--port <port>', 'where clients connect').env('SPILLWAY_PORT').default('8080'),
    )
    .addOption(new Option('--replicas <count>', 'simulated engines, 1 to 32').default('3'))
    .addOption(
      new Option('--load', 'also send conversations, to have something to watch').default(false),
    )
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, COMMON);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const port = wholeNumber('--port', flags.port, { least: 0, most: 65_535 });
  const replicas = wholeNumber('--replicas', flags.replicas, { least: 1, most: 32 });
  const overlays = [...settingOverlays(command, COMMON), ...setOverlays(flags.set ?? [])];
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
  if (flags.load) stopLoad = startDemoLoad({ base, model: MODEL, ...runtime });
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
