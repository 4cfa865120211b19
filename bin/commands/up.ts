// `spillway up`: one command before engines that run already. Looks at each, says what it found, then runs agent and router
// in this process, and a global router before them where the file has one or a flag asks for it.

import { Command, Option } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { ConfigState } from '../../shared/config/state.ts';
import type { EngineKind } from '../../shared/model/engine-kind.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { randomHex } from '../../shared/runtime/entropy.ts';
import type { PeerTrust } from '../../shared/runtime/http-pool.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { TlsStore } from '../../shared/runtime/tls-material.ts';
import { agentOptions } from '../cli/agent-options.ts';
import { loadWithText, textOf } from '../cli/configuration.ts';
import { engineKindOption, engineKinds } from '../cli/engine-kinds.ts';
import {
  addSettings,
  COMMON,
  configOption,
  listOption,
  setOption,
  setOverlays,
  settingOverlays,
  type Setting,
} from '../cli/options.ts';
import { warnOfFewFiles } from '../cli/open-files.ts';
import { endOnSignal, processLog, processRuntime } from '../cli/process.ts';
import { startReloading } from '../cli/reloading.ts';
import { address } from '../cli/router-options.ts';
import { tryItLines, urlOfListener } from '../cli/try-it.ts';
import { UsageError } from '../cli/usage-error.ts';
import { ownTier, ownUplink, upOverlays } from '../up/overlays.ts';
import { startRoles, type OwnLinks, type UpRoles } from '../up/roles.ts';
import { saidBy, type Said } from '../up/said.ts';
import { describeSurvey, surveyEngines, type SurveyedEngine } from '../up/survey.ts';

const ACCESS = {
  flags: '--access <who>',
  env: 'SPILLWAY_ACCESS',
  about: 'loopback, or open to whoever reaches the listener',
};

const EXAMPLES = `
An engine that is not up yet is waited for. The key that engines ask for comes from the environment
(SPILLWAY_ENGINE_API_KEY); clients need none, unless the file has tenants or keys.

A file may say the rest, and the engines too (agent.engines); changes of it are taken while it runs.
Where it has a part \`global\`, or with --global, a global router runs in this process as well: clients
use it, and this region is linked to it on loopback, with secrets of this run where the file has none.

Examples:
  $ spillway up --engine http://127.0.0.1:8000 --engine http://127.0.0.1:8001
  $ spillway up --port 9000 --engine http://10.0.0.5:8000 --engine http://10.0.0.6:8000
  $ spillway up --host 0.0.0.0 --access open --engine http://127.0.0.1:8000
  $ spillway up --global --engine http://127.0.0.1:8000
  $ spillway up -f fleet.yaml`;

interface Flags {
  readonly host: string;
  readonly port: string;
  readonly engine?: readonly string[];
  readonly engineKind?: readonly string[];
  readonly engineCa?: string;
  readonly config?: string;
  readonly global: boolean;
  readonly region?: string;
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
    .addOption(configOption())
    .addOption(new Option('--global', 'run a global router too, before this region').default(false))
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, settings('router'));
  return command.action(async (flags: Flags) => run(command, flags));
}

/** `--access` is of the listener that clients use. */
function settings(front: 'router' | 'global'): readonly Setting[] {
  return [{ ...ACCESS, path: [front, 'clients', 'access'] }, ...COMMON];
}

async function run(command: Command, flags: Flags): Promise<void> {
  const file = flags.config ?? null;
  const said = saidBy(textOf(file), process.env);
  const global = flags.global || said('global') !== undefined;
  const given = flags.engine ?? [];
  if (given.length === 0 && said('agent', 'engines') === undefined) {
    throw new UsageError('which engine? Give --engine http://host:port, once for each');
  }
  const kinds = engineKinds(flags.engineKind, given.length);
  const apiKey = process.env['SPILLWAY_ENGINE_API_KEY'] ?? null;
  const ca = flags.engineCa ?? null;
  const named = given.length === 0 ? null : await lookAt({ urls: given, kinds, apiKey, ca });
  const fixed = {
    region: regionOf(flags, said),
    listen: clientsListen(command, flags, said(global ? 'global' : 'router', 'clients', 'listen')),
    engines: named?.map(({ url, kind }) => ({ url, kind })) ?? null,
    ...{ apiKey, ca, global, secrets: { link: randomHex(32), tier: randomHex(32) } },
  };
  const overlaysFor = (text: string): Overlay[] => [
    ...upOverlays({ ...fixed, said: saidBy(text, process.env) }),
    ...settingOverlays(command, settings(global ? 'global' : 'router')),
    ...setOverlays(flags.set ?? []),
  ];
  const { config, text } = loadWithText(file, overlaysFor);
  if (global) checkTiers(config, said);
  const engines = named ?? (await lookAt(inFile(config, ca)));
  for (const line of describeSurvey(engines)) console.log(line);
  const own = { tier: ownTier(said), uplink: ownUplink(said) };
  await serve({ file, text, overlaysFor, config, own, model: modelOf(engines) });
}

interface Looked {
  readonly urls: readonly string[];
  readonly kinds: readonly (EngineKind | null)[];
  readonly apiKey: string | null;
  readonly ca: string | null;
}

async function lookAt({ ca, ...looked }: Looked): Promise<readonly SurveyedEngine[]> {
  const trusted = engineTrust(ca);
  const trust = trusted?.trust ?? null;
  const survey = await surveyEngines({ ...looked, trust, timeoutMs: 5_000 });
  trusted?.close();
  if (!survey.ok) throw new UsageError(survey.problems.join('\n'));
  return survey.engines;
}

/** The engines of the file. */
function inFile(config: FleetConfig, ca: string | null): Looked {
  if (config.agent === undefined) throw new Error('up always has an agent');
  const { engines, engineApiKey, engineTls } = agentOptions(config.agent, config);
  return {
    urls: engines.map(({ url }) => url),
    kinds: engines.map(({ kind }) => kind ?? null),
    apiKey: engineApiKey,
    ca: ca ?? engineTls?.ca ?? null,
  };
}

/** One that every engine serves. */
function modelOf(engines: readonly SurveyedEngine[]): string | null {
  const [model = null] = engines.flatMap(({ detection }) =>
    detection.kind === 'found' ? detection.facts.models : [],
  );
  return model;
}

/** For the survey; agent and router open the file for themselves. Null: the system's CAs. */
function engineTrust(ca: string | null): { trust: PeerTrust; close(): void } | null {
  if (ca === null) return null;
  const log = createLog({ level: 'silent', readable: false });
  const store = new TlsStore({ clock: systemClock, timers: systemTimers, log });
  const material = store.open({ cert: null, key: null, ca });
  return { trust: { material, serverName: null }, close: () => store.close() };
}

function regionOf({ region }: Flags, said: Said): string {
  const inFile = said('region');
  return region ?? (typeof inFile === 'string' ? inFile : 'local');
}

/** Null: as the file says, where neither flag nor environment says otherwise. */
function clientsListen(command: Command, { host, port }: Flags, inFile: unknown): string | null {
  const byDefault = ['host', 'port'].every(
    (name) => command.getOptionValueSource(name) === 'default',
  );
  if (byDefault && inFile !== undefined) return null;
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) {
    throw new UsageError(`--port ${port}: must be a number from 0 to 65535`);
  }
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** What would start, and never be linked. */
function checkTiers({ region, regions, global }: FleetConfig, said: Said): void {
  if (!regions.some(({ name }) => name === region)) {
    const names = regions.map(({ name }) => name).join(', ');
    throw new UsageError(
      `there is no region "${region}" under regions (${names}): which is this? Give --region`,
    );
  }
  if (global?.links.tls !== null && global?.links.tls !== undefined && ownUplink(said)) {
    throw new UsageError(
      'global.links.tls: then say in router.global how it is reached and verified (urls, tls)',
    );
  }
}

interface Serving {
  readonly file: string | null;
  readonly text: string;
  readonly overlaysFor: (text: string) => Overlay[];
  readonly config: FleetConfig;
  readonly own: OwnLinks;
  readonly model: string | null;
}

async function serve({ file, text, overlaysFor, config, own, model }: Serving): Promise<void> {
  const log = processLog(config.log);
  const state = new ConfigState();
  const runtime = { ...processRuntime(log), ...(file === null ? {} : { configView: state.view }) };
  warnOfFewFiles(log, (config.global ?? config.router).limits.openRequests);
  const roles = await startRoles(config, own, runtime);
  const apply = (next: FleetConfig) => roles.reload(next);
  const reloading = { role: 'up', text, overlaysFor, config, apply, state, log } as const;
  const reloader = file === null ? null : startReloading({ file, ...reloading });
  if (reloader !== null) process.on('SIGHUP', () => reloader.reload());
  endOnSignal(log, {
    drain: () => roles.drain(),
    close: async () => {
      reloader?.close();
      await roles.close();
    },
  });
  for (const line of words(roles, config, model)) console.log(line);
}

/** Where to ask, and where the region behind a global router is to be seen. */
function words({ global, router }: UpRoles, config: FleetConfig, model: string | null): string[] {
  const front = global ?? router;
  const { clients } = config.global ?? config.router;
  const keyed = clients.keys.length > 0 || config.tenants.length > 0;
  const adminUrl = operatorsUrl(config.global ?? config.router, front);
  const { host } = address(clients.listen);
  const where = { host, port: front.clientsPort, tls: clients.tls !== null, keyed, adminUrl };
  const lines = tryItLines(where, model);
  if (global === null) return lines;
  const status = operatorsUrl(config.router, router);
  return [...lines, `  region ${config.region}, behind the global router: ${status}/status`, ''];
}

function operatorsUrl(
  { clients, admin }: Pick<FleetConfig['router'], 'clients' | 'admin'>,
  { clientsPort, adminPort }: Ports,
): string {
  const { listen, tls } = admin ?? clients;
  return urlOfListener(listen, adminPort ?? clientsPort, tls !== null);
}

type Ports = Pick<UpRoles['router'], 'clientsPort' | 'adminPort'>;
