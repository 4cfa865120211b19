// `spillway schema`: the JSON Schema of fleet.yaml, for editors.

import { Command } from 'commander';
import { fleetJsonSchema } from '../../shared/config/schema.ts';

const EXAMPLES = `
Examples:
  $ spillway schema > fleet.schema.json
  then, as the first line of fleet.yaml:
  # yaml-language-server: $schema=fleet.schema.json`;

export function schemaCommand(): Command {
  return new Command('schema')
    .description('print the JSON Schema of fleet.yaml')
    .addHelpText('after', EXAMPLES)
    .action(() => {
      console.log(JSON.stringify(fleetJsonSchema(), null, 2));
    });
}
