// `spillway key new`: a key for a client, and the hash of it that fleet.yaml holds. `spillway key hash`: the hash of a key
// that clients have already.

import { createHash, randomBytes } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { Command, Option } from 'commander';
import { UsageError } from '../cli/usage-error.ts';

/** 256 bits: what is hashed once, without salt, must be beyond guessing. */
const KEY_BYTES = 32;
/** Characters of a key of somebody else's making; shorter ones can be guessed from their hash. */
const KEY_CHARACTERS_MIN = 32;
const PREFIX = 'sk-spillway-';

const EXAMPLES = `
The key goes to the client, the hash into router.clients.keys of fleet.yaml, or below its tenant. The key is shown once and
kept nowhere.

Examples:
  $ spillway key new --name chat-team
  $ spillway key hash < existing-key.txt`;

export function keyCommand(): Command {
  const command = new Command('key')
    .description('make keys for clients')
    .addHelpText('after', EXAMPLES);
  command
    .command('new')
    .description('make a key: prints it, and its line for fleet.yaml')
    .addOption(new Option('--name <name>', 'whose it is, for the log').default('client'))
    .action(({ name }: { readonly name: string }) => {
      const key = PREFIX + randomBytes(KEY_BYTES).toString('base64url');
      console.log(`key:   ${key}`);
      console.log(`hash:  ${hashOf(key)}`);
      console.log(
        `\nfleet.yaml, under router.clients.keys or the keys of a tenant:\n  - { name: ${yaml(name)}, hash: '${hashOf(key)}' }`,
      );
    });
  command
    .command('hash')
    .description('print the hash of a key that is read from standard input')
    .action(async () => {
      const key = (await text(process.stdin)).trim();
      if (!/^[\x21-\x7e]+$/.test(key) || key.length < KEY_CHARACTERS_MIN) {
        throw new UsageError(
          `a key has at least ${KEY_CHARACTERS_MIN} visible ASCII characters: a shorter one can be guessed from its hash`,
        );
      }
      console.log(hashOf(key));
    });
  return command;
}

function hashOf(key: string): string {
  return `sha256:${createHash('sha256').update(key).digest('hex')}`;
}

function yaml(name: string): string {
  return /^[A-Za-z][\w.-]*$/.test(name) ? name : JSON.stringify(name);
}
