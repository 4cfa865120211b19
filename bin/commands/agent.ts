// `spillway agent`: stands beside engines, reports what they do not, dials every router.

import { Command } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import { agentOptions } from '../cli/agent-options.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { evidenceOf, evidenceOptions } from '../cli/evidence-flags.ts';
import { engineKindOption, engineKinds } from '../cli/engine-kinds.ts';
import { kvEventsOf, kvEventsOptions, type KvEventsFlags } from '../cli/kv-events-flags.ts';
import {
  addSettings,
  COMMON,
  configOption,
  listOption,
  setOption,
  setOverlays,
  settingOverlays,
  sourceOf,
  type Setting,
} from '../cli/options.ts';
import { fileHasAgent, secretOverlays } from '../cli/secrets.ts';
import { endOnSignal, processLog, processRuntime, started } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';

const SETTINGS: readonly Setting[] = [
  {
    flags: '--pool <name>',
    env: 'SPILLWAY_POOL',
    path: ['agent', 'pool'],
    about: 'pool that the engines belong to (default: "default")',
  },
  {
    flags: '--listen <host:port>',
    env: 'SPILLWAY_AGENT_LISTEN',
    path: ['agent', 'listen'],
    about: 'health, metrics and the address proof (default: 127.0.0.1:8090)',
  },
  {
    flags: '--revision <name>',
    env: 'SPILLWAY_REVISION',
    path: ['agent', 'settings', 'revision'],
    about: 'revision of the weights, as requests may demand it',
  },
  {
    flags: '--router-ca <file>',
    env: 'SPILLWAY_ROUTER_CA',
    path: ['agent', 'routerTls', 'ca'],
    about: 'CAs that vouch for wss routers (PEM)',
  },
  {
    flags: '--engine-ca <file>',
    env: 'SPILLWAY_ENGINE_CA',
    path: ['agent', 'engineTls', 'ca'],
    about: 'CAs that vouch for https engines (PEM)',
  },
  ...COMMON,
];

const EXAMPLES = `
Secrets come from the environment or the file: SPILLWAY_LINK_SECRET (towards the routers),
SPILLWAY_ENGINE_API_KEY (towards the engines).

Examples:
  $ spillway agent --engine http://127.0.0.1:8000 --router ws://127.0.0.1:8081
  $ spillway agent --engine http://127.0.0.1:8000 --advertise http://10.0.0.7:8000 \\
      --pool llama --router ws://routers.internal:8081 --listen 0.0.0.0:8090
  $ spillway agent --config /etc/spillway/fleet.yaml --engine http://127.0.0.1:8001 \\
      --listen 127.0.0.1:8091 --set agent.settings.probeIntervalMs=5000`;

interface Flags extends KvEventsFlags {
  readonly config?: string;
  readonly engine?: readonly string[];
  readonly engineKind?: readonly string[];
  readonly enginePidFile?: readonly string[];
  readonly engineUnit?: readonly string[];
  readonly engineLog?: readonly string[];
  readonly advertise?: readonly string[];
  readonly router?: readonly string[];
  readonly set?: readonly string[];
}

export function agentCommand(): Command {
  const command = new Command('agent')
    .description('run an agent beside one or more engines')
    .addOption(configOption())
    .addOption(
      listOption('--engine <url...>', 'SPILLWAY_ENGINES', 'engine, as the agent reaches it'),
    )
    .addOption(
      listOption(
        '--advertise <url...>',
        'SPILLWAY_ADVERTISE',
        'the same engine, as routers reach it',
      ),
    )
    .addOption(engineKindOption())
    .addOption(listOption('--router <url...>', 'SPILLWAY_ROUTERS', 'link listener of a router'))
    .addOption(setOption())
    .addHelpText('after', EXAMPLES);
  for (const option of [...evidenceOptions(), ...kvEventsOptions()]) command.addOption(option);
  addSettings(command, SETTINGS);
  return command.action(async (flags: Flags) => run(command, flags));
}

async function run(command: Command, flags: Flags): Promise<void> {
  const config = loadOrExplain(flags.config ?? null, overlays(command, flags));
  const { agent } = config;
  if (agent === undefined) {
    throw new UsageError(
      'which engine? Give --engine URL (SPILLWAY_ENGINES) or a file with an agent section (--config)',
    );
  }
  const { startAgent } = await import('../../agent/start.ts');
  const log = processLog(config.log);
  // Sent to every Spillway process of a machine, it must not end those that have nothing to reload.
  process.on('SIGHUP', () => log.warn('an agent reads its configuration at its start only'));
  const running = await started(
    startAgent(agentOptions(agent, config), processRuntime(log)),
    '--listen',
  );
  endOnSignal(log, { close: () => running.close() });
}

function overlays(command: Command, flags: Flags): Overlay[] {
  return [
    ...engineOverlays(command, flags),
    ...(flags.router === undefined
      ? []
      : [{ path: ['agent', 'routers'], value: flags.router, source: sourceOf(command, 'router') }]),
    ...settingOverlays(command, SETTINGS),
    ...secretOverlays(process.env, {
      agent: flags.engine !== undefined || fileHasAgent(flags.config ?? null),
    }),
    ...setOverlays(flags.set ?? []),
  ];
}

function engineOverlays(command: Command, flags: Flags): Overlay[] {
  const { engine, advertise, engineKind } = flags;
  if (engine === undefined) {
    evidenceOf(flags, 0);
    if (advertise === undefined && engineKind === undefined) return [];
    throw new UsageError(
      `${advertise === undefined ? '--engine-kind' : '--advertise'} needs --engine`,
    );
  }
  if (advertise !== undefined && advertise.length !== engine.length) {
    throw new UsageError(
      `${engine.length} × --engine and ${advertise.length} × --advertise: give one --advertise for each --engine, in the same order`,
    );
  }
  const kinds = engineKinds(engineKind, engine.length);
  const events = kvEventsOf(flags, engine.length);
  const evidence = evidenceOf(flags, engine.length);
  const value = engine.map((url, i) => ({
    url,
    kvEvents: events[i] ?? null,
    advertise: advertise?.[i] ?? null,
    kind: kinds[i] ?? null,
    ...evidence[i],
  }));
  return [{ path: ['agent', 'engines'], value, source: sourceOf(command, 'engine') }];
}
