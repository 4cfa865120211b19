// `spillway up`: one command before engines that run already. Looks at each, says what it found, then runs agent
// and router in this process.

import { Command, Option } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import { createLog } from '../../shared/runtime/log.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { TlsStore } from '../../shared/runtime/tls-material.ts';
import { agentOptions } from '../cli/agent-options.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { engineKindOption, engineKinds } from '../cli/engine-kinds.ts';
import {
  addSettings,
  COMMON,
  listOption,
  setOption,
  setOverlays,
  settingOverlays,
  type Setting,
} from '../cli/options.ts';
import { endOnSignal, processLog, processRuntime, started } from '../cli/process.ts';
import { routerOptions } from '../cli/router-options.ts';
import { tryItLines } from '../cli/try-it.ts';
import { UsageError } from '../cli/usage-error.ts';
import { describeSurvey, surveyEngines } from '../up/survey.ts';

const SETTINGS: readonly Setting[] = [
  {
    flags: '--access <who>',
    env: 'SPILLWAY_ACCESS',
    path: ['router', 'clients', 'access'],
    about: 'loopback, or open to whoever reaches the listener',
  },
  ...COMMON,
];

const EXAMPLES = `
An engine that is not up yet is waited for. The key that engines ask for comes from the environment
(SPILLWAY_ENGINE_API_KEY); clients need none.

Examples:
  $ spillway up --engine http://127.0.0.1:8000 --engine http://127.0.0.1:8001
  $ spillway up --port 9000 --engine http://10.0.0.5:8000 --engine http://10.0.0.6:8000
  $ spillway up --host 0.0.0.0 --access open --engine http://127.0.0.1:8000`;

interface Flags {
  readonly host: string;
  readonly port: string;
  readonly engine?: readonly string[];
  readonly engineKind?: readonly string[];
  readonly engineCa?: string;
  readonly set?: readonly string[];
}

export function upCommand(): Command {
  const command = new Command('up')
    .description('run agent and router before engines that run already')
    .addOption(listOption('--engine <url...>', 'SPILLWAY_ENGINES', 'base URL of an engine'))
    .addOption(engineKindOption())
    .addOption(
      new Option('--engine-ca <file>', 'CAs that vouch for https engines (PEM)').env(
        'SPILLWAY_ENGINE_CA',
      ),
    )
    .addOption(
      new Option('--port <port>', 'where clients connect').env('SPILLWAY_PORT').default('8080'),
    )
    .addOption(
      new Option('--host <host>', 'on which address').env('SPILLWAY_HOST').default('127.0.0.1'),
    )
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, SETTINGS);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const urls = flags.engine ?? [];
  if (urls.length === 0) {
    throw new UsageError('which engine? Give --engine http://host:port, once for each');
  }
  const listen = clientsListen(flags);
  const apiKey = process.env['SPILLWAY_ENGINE_API_KEY'] ?? null;
  const kinds = engineKinds(flags.engineKind, urls.length);
  const trusted = engineTrust(flags.engineCa ?? null);
  const trust = trusted?.trust ?? null;
  const survey = await surveyEngines({ urls, kinds, apiKey, trust, timeoutMs: 5_000 });
  trusted?.close();
  if (!survey.ok) throw new UsageError(survey.problems.join('\n'));
  const engines = survey.engines.map(({ url, kind }) => ({ url, kind }));
  const config = loadOrExplain(null, [
    ...upOverlays(listen, engines, { apiKey, ca: flags.engineCa ?? null }),
    ...settingOverlays(command, SETTINGS),
    ...setOverlays(flags.set ?? []),
  ]);
  for (const line of describeSurvey(survey.engines)) console.log(line);
  const [model = null] = survey.engines.flatMap(({ detection }) =>
    detection.kind === 'found' ? detection.facts.models : [],
  );
  await serve(config, flags, model);
}

/** For the survey; agent and router open the file for themselves. Null: the system's CAs. */
function engineTrust(ca: string | null): { trust: PeerTrust; close(): void } | null {
  if (ca === null) return null;
  const log = createLog({ level: 'silent', readable: false });
  const store = new TlsStore({ clock: systemClock, timers: systemTimers, log });
  const material = store.open({ cert: null, key: null, ca });
  return { trust: { material, serverName: null }, close: () => store.close() };
}

function clientsListen({ host, port }: Flags): string {
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) {
    throw new UsageError(`--port ${port}: must be a number from 0 to 65535`);
  }
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The person named the engines, so wherever they are is allowed, and nobody has to prove an address. */
function upOverlays(
  listen: string,
  engines: readonly { readonly url: string; readonly kind: EngineKind | null }[],
  { apiKey, ca }: { readonly apiKey: string | null; readonly ca: string | null },
): Overlay[] {
  const engineTls = ca === null ? null : { ca };
  const pool = { id: 'default', apiKey, engineTls, engineCidrs: ['0.0.0.0/0', '::/0'] };
  return [
    { path: ['router', 'clients', 'listen'], value: listen, source: '--host, --port' },
    { path: ['router', 'links', 'listen'], value: '127.0.0.1:0', source: 'up' },
    { path: ['router', 'admin'], value: null, source: 'up' },
    { path: ['router', 'addressProof'], value: false, source: 'up' },
    { path: ['pools'], value: [pool], source: 'up' },
    { path: ['agent'], value: { engines, engineTls, listen: '127.0.0.1:0' }, source: '--engine' },
  ];
}

/** `model`: one that every engine serves. */
async function serve(config: FleetConfig, { host }: Flags, model: string | null): Promise<void> {
  const { agent } = config;
  if (agent === undefined) throw new Error('up always has an agent');
  const { startAgent } = await import('../../agent/start.ts');
  const { startRegionalRouter } = await import('../../router/regional/start.ts');
  const log = processLog(config.log);
  const runtime: RoleRuntime = processRuntime(log);
  const router = await started(startRegionalRouter(routerOptions(config), runtime), '--port');
  const options = agentOptions(agent, config);
  const links = [`ws://127.0.0.1:${router.linksPort}`];
  const running = await started(
    startAgent({ ...options, routers: links }, runtime),
    '--set agent.listen=…',
  );
  endOnSignal(log, {
    drain: () => router.drain(),
    close: async () => {
      await running.close();
      await router.close();
    },
  });
  for (const line of tryItLines(
    { host, port: router.clientsPort, tls: config.router.clients.tls !== null },
    model,
  ))
    console.log(line);
}
