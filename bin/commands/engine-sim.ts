// `spillway engine-sim`: a simulated vLLM over HTTP, for trying Spillway and for tests without a GPU.

import { Command, Option } from 'commander';
import { seededRandom } from '../../shared/lib/random.ts';
import { parseEngineSimOptions } from '../../sim/engine/http/flag-values.ts';
import { ENGINE_SIM_OPTIONS, type EngineSimValues } from '../../sim/engine/http/flags.ts';
import { endOnSignal, processLog, processRuntime, started } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';

const EXAMPLES = `
It speaks the engine's own HTTP, publishes KV events where it is told to, takes SIGTERM as the engine does, and
computes its answers' timing from a model of the engine; the text that it generates means nothing.

Examples:
  $ spillway engine-sim --port 8000
  $ spillway engine-sim --port 8001 --model llama --loading-ms 60000 --kv-tokens 65536
  $ spillway engine-sim --kv-events-config '{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557"}'`;

export function engineSimCommand(): Command {
  const command = new Command('engine-sim')
    .description('run a simulated engine')
    .addHelpText('after', EXAMPLES);
  for (const { flags, description, kinds, default: byDefault } of ENGINE_SIM_OPTIONS) {
    const whose = kinds === undefined ? '' : `${kinds.join(', ')}: `;
    const option = new Option(flags, `${whose}${description}`);
    command.addOption(byDefault === undefined ? option : option.default(byDefault));
  }
  return command.action(async (flags: Record<string, string | boolean>) => run(flags));
}

async function run(flags: Readonly<Record<string, string | boolean>>): Promise<void> {
  const values = Object.fromEntries(
    ENGINE_SIM_OPTIONS.map(({ key, flags: text }) => [
      key,
      flags[new Option(text).attributeName()],
    ]),
  ) as EngineSimValues;
  const parsed = parseEngineSimOptions(values);
  if (!parsed.ok) throw new UsageError(parsed.problems.join('\n'));
  const { startEngineServer, KvEndpointFault } = await import('../../sim/engine/http/server.ts');
  const log = processLog({ level: 'info', format: 'auto' });
  const runtime = processRuntime(log);
  const random = parsed.seed === null ? runtime.random : seededRandom(parsed.seed);
  const starting = startEngineServer(parsed.options, { ...runtime, random });
  const server = await started(starting, '--port').catch((cause: unknown) => {
    if (!(cause instanceof KvEndpointFault)) throw cause;
    throw new UsageError(`${cause.message} (--kv-events-config)`, { cause });
  });
  const { host, model, profile, loadingMs } = parsed.options;
  endOnSignal(log, {
    // What an engine does about SIGTERM is part of what is simulated; Ctrl-C just ends.
    drain: (signal) => (signal === 'SIGTERM' ? server.terminate() : Promise.resolve()),
    close: () => server.close(),
  });
  void server.whenGone().then((code) => process.exit(code));
  console.log(
    `simulated engine "${model}" (${profile.name}) on http://${host}:${server.port}, serving after ${loadingMs ?? profile.loadingMs} ms`,
  );
}
