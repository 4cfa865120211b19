// `spillway router`: the regional router. With a file, changes of it are taken while it runs.

import { Command } from 'commander';
import type { RouterReloadable } from '../../router/regional/options.ts';
import type { DrainOptions } from '../../router/gateway/leaving.ts';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { ConfigState } from '../../shared/config/state.ts';
import { WORKERS_MAX } from '../../shared/model/worker-ports.ts';
import { coresToUse } from '../../shared/runtime/cores.ts';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { loadWithText } from '../cli/configuration.ts';
import {
  addSettings,
  COMMON,
  configOption,
  setOption,
  setOverlays,
  settingOverlays,
  type Setting,
} from '../cli/options.ts';
import { warnOfFewFiles } from '../cli/open-files.ts';
import { secretOverlays, textHasAgent } from '../cli/secrets.ts';
import { endOnSignal, isReadable, processLog, processRuntime, started } from '../cli/process.ts';
import { startReloading } from '../cli/reloading.ts';
import { routerOptions, routerReloadable } from '../cli/router-options.ts';
import { CrewUnusable } from '../workers/crew-unusable.ts';

const SETTINGS: readonly Setting[] = [
  {
    flags: '--listen <host:port>',
    env: 'SPILLWAY_LISTEN',
    path: ['router', 'clients', 'listen'],
    about: 'where clients connect (default: 127.0.0.1:8080)',
  },
  {
    flags: '--access <who>',
    env: 'SPILLWAY_ACCESS',
    path: ['router', 'clients', 'access'],
    about: 'loopback, or open to whoever reaches the listener without a key',
  },
  {
    flags: '--tls-cert <file>',
    env: 'SPILLWAY_TLS_CERT',
    path: ['router', 'clients', 'tls', 'cert'],
    about: 'certificate of the client listener (PEM)',
  },
  {
    flags: '--tls-key <file>',
    env: 'SPILLWAY_TLS_KEY',
    path: ['router', 'clients', 'tls', 'key'],
    about: 'its private key',
  },
  {
    flags: '--links <host:port>',
    env: 'SPILLWAY_LINKS',
    path: ['router', 'links', 'listen'],
    about: 'where agents connect (default: 127.0.0.1:8081)',
  },
  {
    flags: '--admin <host:port>',
    env: 'SPILLWAY_ADMIN',
    path: ['router', 'admin', 'listen'],
    about: 'metrics, status, readiness (default: 127.0.0.1:8082)',
  },
  {
    flags: '--workers <count>',
    env: 'SPILLWAY_WORKERS',
    path: ['router', 'workers'],
    count: true,
    about: 'processes that share the work, or auto: one a core (default: 1)',
  },
  ...COMMON,
];

const EXAMPLES = `
The secret of the links comes from the environment (SPILLWAY_LINK_SECRET; two, separated by a
comma, while rotating) or the file.

A file given with --config is watched: pools, models, keys, secrets, router.routing and router.limits
are swapped while running (also on SIGHUP); a broken file changes nothing, and /status says why.
Certificate files are read again when they change.

Examples:
  $ spillway router
  $ spillway router --config /etc/spillway/fleet.yaml
  $ SPILLWAY_LINK_SECRET=… spillway router --listen 0.0.0.0:8080 --access open --links 0.0.0.0:8081
  $ spillway router --config fleet.yaml --workers auto
  $ spillway router --config fleet.yaml --tls-cert router.crt --tls-key router.key`;

interface Flags {
  readonly config?: string;
  readonly set?: readonly string[];
}

export function routerCommand(): Command {
  const command = new Command('router')
    .description('run a regional router')
    .addOption(configOption())
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, SETTINGS);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const overlaysFor = (text: string): Overlay[] => [
    ...settingOverlays(command, SETTINGS),
    ...secretOverlays(process.env, { agent: textHasAgent(text) }),
    ...setOverlays(flags.set ?? []),
  ];
  const file = flags.config ?? null;
  const { config, text } = loadWithText(file, overlaysFor);
  const log = processLog(config.log);
  const state = new ConfigState();
  const runtime = { ...processRuntime(log), configView: state.view };
  const router = await started(startRouter(config, runtime), '--listen, --links, --admin');
  const apply = (next: FleetConfig) => router.reload(routerReloadable(next));
  const reloading = { text, overlaysFor, config, apply, state, log };
  const reloader = file === null ? null : startReloading({ role: 'router', file, ...reloading });
  process.on('SIGHUP', () => reloader?.reload());
  const { acceptMs, drainMs } = config.router.shutdown;
  endOnSignal(log, {
    drain: () => {
      log.info({ acceptMs, drainMs }, 'draining');
      return router.drain({ acceptMs, drainMs });
    },
    close: async () => {
      reloader?.close();
      await router.close();
    },
  });
}

/** One process, or a parent and its workers. */
interface Router {
  reload(reloadable: RouterReloadable): void | Promise<void>;
  drain(options: DrainOptions): Promise<void>;
  close(): Promise<void>;
}

async function startRouter(config: FleetConfig, runtime: RoleRuntime): Promise<Router> {
  const options = routerOptions(config);
  const { workers } = config.router;
  const count = workers === 'auto' ? Math.min(coresToUse(), WORKERS_MAX) : workers;
  warnOfFewFiles(runtime.log, Math.ceil(config.router.limits.openRequests / count));
  if (count > 1) {
    const { startWorkers } = await import('../workers/start.ts');
    const { drainMs } = config.router.shutdown;
    try {
      const log = { level: config.log.level, readable: isReadable(config.log) };
      return await startWorkers({ count, options, log, drainMs }, runtime);
    } catch (error) {
      if (!(error instanceof CrewUnusable)) throw error;
      runtime.log.warn({ problem: error.message }, 'no workers here: one process serves alone');
    }
  }
  const { startRegionalRouter } = await import('../../router/regional/start.ts');
  return startRegionalRouter(options, runtime);
}
