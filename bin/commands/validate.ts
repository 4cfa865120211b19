// `spillway validate -f fleet.yaml`: all problems of a file, or one line that says it is good.

import { Command, Option } from 'commander';
import type { Overlay } from '../../shared/config/diagnostics.ts';
import { parseFleet } from '../../shared/config/load.ts';
import { readBounded } from '../../shared/config/read.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { setOption, setOverlays } from '../cli/options.ts';
import { routingTestProblems } from '../cli/routing-tests.ts';
import { fileHasAgent, secretOverlays } from '../cli/secrets.ts';
import { UsageError } from '../cli/usage-error.ts';

const EXAMPLES = `
Environment variables that the file names must be set. Secrets that router and agent take from the environment
(SPILLWAY_LINK_SECRET, SPILLWAY_ENGINE_API_KEY) count here too. What the file expects under
\`tests\` is looked at as well: for a tenant and a model, which regions may serve it.

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
      const config = good(flags);
      const { pools, models, agent, regions, tenants, tests } = config;
      const engines = agent === undefined ? '' : `, ${agent.engines.length} engines`;
      const fleet = regions.length === 0 ? '' : `, ${regions.length} regions`;
      const who = tenants.length === 0 ? '' : `, ${tenants.length} tenants`;
      const found = tests.length === 0 ? '' : `, ${tests.length} tests passed`;
      const local = `${pools.length} pools, ${Object.keys(models).length} models${engines}`;
      console.log(`${flags.file}: good (${local}${fleet}${who}${found})`);
    });
}

/** Also what the file says under `tests`. */
function good(flags: Flags): FleetConfig {
  const { file } = flags;
  const read = readBounded(file);
  if (!read.ok) throw new UsageError(read.error);
  const input = { file, text: read.text, environment: process.env, overlays: overlays(flags) };
  const result = parseFleet({ ...input, checks: routingTestProblems });
  if (!result.ok) throw new UsageError(result.error);
  return result.config;
}

/** The secrets as the roles would take them. */
function overlays({ file, set = [] }: Flags): Overlay[] {
  return [...secretOverlays(process.env, { agent: fileHasAgent(file) }), ...setOverlays(set)];
}
