// Holds words that somebody may type against the command line, without running anything.

import type { Command } from 'commander';
import { expect } from 'vitest';
import { buildProgram } from '../../bin/program.ts';

export function commandNamed(name: string): Command {
  const command = buildProgram().commands.find((candidate) => candidate.name() === name);
  if (command === undefined) throw new Error(`there is no command ${name}`);
  return command;
}

/** Parses as the command line would; the values of the options. */
export function check(words: readonly string[]): Record<string, unknown> {
  const [name, ...rest] = words;
  const command = commandNamed(name ?? '');
  command.exitOverride().configureOutput({ writeErr: () => undefined });
  const { unknown, operands } = command.parseOptions([...rest]);
  expect(unknown, `${words.join(' ')}: options that the command does not have`).toEqual([]);
  const spare = operands.slice(command.registeredArguments.length);
  expect(spare, `${words.join(' ')}: words that belong to no option`).toEqual([]);
  return command.opts();
}

/** What a command prints for `--help`. */
export function helpOf(command: Command): string {
  let text = '';
  command.configureOutput({ writeOut: (piece) => (text += piece) }).outputHelp();
  return text;
}
