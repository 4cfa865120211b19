// Entry of every process. Bad input ends with one clear message and 1; a bug ends with its stack.

import { FleetError } from '../shared/errors.ts';
import { UsageError } from './cli/usage-error.ts';
import { buildProgram } from './program.ts';

const program = buildProgram();
if (process.argv.length <= 2) {
  program.outputHelp({ error: true });
  process.exit(1);
}
try {
  await program.parseAsync();
} catch (cause) {
  if (!(cause instanceof UsageError) && !(cause instanceof FleetError)) throw cause;
  const command = process.argv[2] ?? '';
  console.error(cause.message.replaceAll(/^/gm, `spillway ${command}: `));
  process.exit(1);
}
