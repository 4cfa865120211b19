// The command line: every command, and how bad input is told.

import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { agentCommand } from './commands/agent.ts';
import { demoCommand } from './commands/demo.ts';
import { drainCommand } from './commands/drain.ts';
import { engineSimCommand } from './commands/engine-sim.ts';
import { gamedayCommand } from './commands/gameday.ts';
import { globalCommand } from './commands/global.ts';
import { keyCommand } from './commands/key.ts';
import { routerCommand } from './commands/router.ts';
import { schemaCommand } from './commands/schema.ts';
import { upCommand } from './commands/up.ts';
import { validateCommand } from './commands/validate.ts';

const EXAMPLES = `
Examples:
  $ spillway demo                                     three regions of simulated engines on port 8080
  $ spillway gameday --demo                           their story, played and checked
  $ spillway up --engine http://127.0.0.1:8000        in front of an engine that runs already
  $ spillway router --config fleet.yaml               the parts as separate processes
  $ spillway global -f fleet.yaml                     before several regions
  $ spillway agent --engine http://127.0.0.1:8000 --router ws://127.0.0.1:8081
  $ spillway validate -f fleet.yaml

Every command has its own --help.`;

export function softwareVersion(): string {
  const file = new URL('../package.json', import.meta.url);
  const { version } = JSON.parse(readFileSync(file, 'utf8')) as { version: string };
  return version;
}

export function buildProgram(): Command {
  const program = new Command('spillway')
    .description('Runs open-weight models on your own GPUs as one service.')
    .version(softwareVersion())
    .addHelpText('after', EXAMPLES);
  const commands = [
    demoCommand(),
    gamedayCommand(),
    upCommand(),
    routerCommand(),
    globalCommand(),
    agentCommand(),
    drainCommand(),
    engineSimCommand(),
    keyCommand(),
    validateCommand(),
    schemaCommand(),
    versionCommand(),
  ];
  for (const command of commands) program.addCommand(command);
  for (const command of [program, ...commands]) explainOnOneLine(command);
  return program;
}

function versionCommand(): Command {
  return new Command('version')
    .description('print the version')
    .addHelpText('after', '\nExamples:\n  $ spillway version')
    .action(() => {
      console.log(softwareVersion());
    });
}

/** "error: unknown option '--prot' (Did you mean --port?)", and where to read on. */
function explainOnOneLine(command: Command): void {
  const name = command.name() === 'spillway' ? 'spillway' : `spillway ${command.name()}`;
  command.showSuggestionAfterError(true).configureOutput({
    outputError: (text, write) => {
      const line = text
        .replace(/^error: /, '')
        .trim()
        .replaceAll('\n', ' ');
      write(`${name}: ${line} (see ${name} --help)\n`);
    },
  });
}
