// `spillway validate -f fleet.yaml`: all problems of a file, or one line that says it is good.

import { Command, Option } from 'commander';
import { loadOrExplain } from '../cli/configuration.ts';
import { setOption, setOverlays } from '../cli/options.ts';

const EXAMPLES = `
Environment variables that the file names must be set.

Examples:
  $ spillway validate -f fleet.yaml
  $ SPILLWAY_LINK_SECRET=x ENGINE_KEY=y spillway validate -f docs/examples/one-region.yaml`;

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
      const { pools, models, agent } = loadOrExplain(flags.file, setOverlays(flags.set ?? []));
      const engines = agent === undefined ? '' : `, ${agent.engines.length} engines`;
      console.log(
        `${flags.file}: good (${pools.length} pools, ${Object.keys(models).length} models${engines})`,
      );
    });
}
