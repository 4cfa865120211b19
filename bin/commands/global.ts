// `spillway global`: the global router, before several regions. Changes of its file are taken while it runs.

import { Command } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { FleetConfig, GlobalConfig } from '../../shared/config/schema.ts';
import { ConfigState } from '../../shared/config/state.ts';
import { loadWithText } from '../cli/configuration.ts';
import { globalOptions, globalReloadable } from '../cli/global-options.ts';
import {
  addSettings,
  COMMON,
  configOption,
  setOption,
  setOverlays,
  settingOverlays,
  type Setting,
} from '../cli/options.ts';
import { endOnSignal, processLog, processRuntime, started } from '../cli/process.ts';
import { startReloading } from '../cli/reloading.ts';
import { warnOfFewFiles } from '../cli/open-files.ts';
import { secretOverlays, textHasAgent } from '../cli/secrets.ts';
import { UsageError } from '../cli/usage-error.ts';

const SETTINGS: readonly Setting[] = [
  {
    flags: '--zone <name>',
    env: 'SPILLWAY_ZONE',
    path: ['global', 'zone'],
    about: 'zone of data residency that this router stands in',
  },
  {
    flags: '--listen <host:port>',
    env: 'SPILLWAY_LISTEN',
    path: ['global', 'clients', 'listen'],
    about: 'where clients connect (default: 127.0.0.1:9080)',
  },
  {
    flags: '--access <who>',
    env: 'SPILLWAY_ACCESS',
    path: ['global', 'clients', 'access'],
    about: 'loopback, or open to whoever reaches the listener without a key',
  },
  {
    flags: '--links <host:port>',
    env: 'SPILLWAY_LINKS',
    path: ['global', 'links', 'listen'],
    about: 'where routers of regions connect (default: 127.0.0.1:9081)',
  },
  {
    flags: '--admin <host:port>',
    env: 'SPILLWAY_ADMIN',
    path: ['global', 'admin', 'listen'],
    about: 'metrics, status, readiness (default: 127.0.0.1:9082)',
  },
  ...COMMON.filter(({ flags }) => !flags.startsWith('--region')),
];

const EXAMPLES = `
The file names the regions, and how each is known and reached (regions), who may be served where
(tenants), and how regions are chosen (global.routing). It is watched: those are swapped while running
(also on SIGHUP); a broken file changes nothing, and /status says why.

Examples:
  $ spillway global -f fleet.yaml
  $ spillway global -f fleet.yaml --zone eu --listen 0.0.0.0:9080 --links 0.0.0.0:9081`;

interface Flags {
  readonly config?: string;
  readonly set?: readonly string[];
}

export function globalCommand(): Command {
  const command = new Command('global')
    .description('run a global router before several regions')
    .addOption(configOption())
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  addSettings(command, SETTINGS);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const file = flags.config ?? null;
  if (file === null) throw new UsageError('which regions? Give -f fleet.yaml');
  const overlaysFor = (text: string): Overlay[] => [
    ...settingOverlays(command, SETTINGS),
    ...secretOverlays(process.env, { agent: textHasAgent(text) }),
    ...setOverlays(flags.set ?? []),
  ];
  const { config, text } = loadWithText(file, overlaysFor);
  const global = globalPart(config);
  const log = processLog(config.log);
  const state = new ConfigState();
  const runtime = { ...processRuntime(log), configView: state.view };
  warnOfFewFiles(log, global.limits.openRequests);
  const { startGlobalRouter } = await import('../../router/global/start.ts');
  const router = await started(
    startGlobalRouter(globalOptions(config, global), runtime),
    '--listen, --links, --admin',
  );
  const reloader = startReloading({
    ...{ role: 'global', file, text, overlaysFor, config, state, log },
    apply: (next) => router.reload(globalReloadable(next, globalPart(next))),
  });
  process.on('SIGHUP', () => reloader.reload());
  const { acceptMs, drainMs } = global.shutdown;
  endOnSignal(log, {
    drain: () => {
      log.info({ acceptMs, drainMs }, 'draining');
      return router.drain({ acceptMs, drainMs });
    },
    close: async () => {
      reloader.close();
      await router.close();
    },
  });
}

function globalPart({ global }: FleetConfig): GlobalConfig {
  if (global !== undefined) return global;
  throw new UsageError('the file has no part `global`: write at least `global: {}`');
}
