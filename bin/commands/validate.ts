// `spillway validate -f fleet.yaml`: all problems of a file, or one line that says it is good.

import { Command, Option } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { setOption, setOverlays } from '../cli/options.ts';
import { fileHasAgent, secretOverlays } from '../cli/secrets.ts';

const EXAMPLES = `
Environment variables that the file names must be set. Secrets that router and agent take from the environment
(SPILLWAY_LINK_SECRET, SPILLWAY_ENGINE_API_KEY) count here too.

Examples:
  $ spillway validate -f fleet.yaml
  $ SPILLWAY_LINK_SECRET=at-least-16-characters ENGINE_KEY=y spillway validate -f docs/examples/one-region.yaml`;

interface Flags {
  readonly file: string;
  readonly set?: readonly string[];
}

export function validateCommand(): Command {
  return new Command('validate')
    .description('check a fleet.yaml')
    .addOption(
      new Option('-f, --file <file>', 'the file to check')
        .env('SPILLWAY_CONFIG')
        .makeOptionMandatory(),
    )
    .addOption(setOption())
    .addHelpText('after', EXAMPLES)
    .action((flags: Flags) => {
      const { pools, models, agent } = loadOrExplain(flags.file, overlays(flags));
      const engines = agent === undefined ? '' : `, ${agent.engines.length} engines`;
      console.log(
        `${flags.file}: good (${pools.length} pools, ${Object.keys(models).length} models${engines})`,
      );
    });
}

/** The secrets as the roles would take them. */
function overlays({ file, set = [] }: Flags): Overlay[] {
  return [...secretOverlays(process.env, { agent: fileHasAgent(file) }), ...setOverlays(set)];
}
