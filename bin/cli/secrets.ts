// Secrets from the environment: a command line can be read by everybody on the machine. One file serves all roles and
// every process checks all of it, so the secrets are laid over the parts of each role, not only over one's own.

import type { Overlay } from '../../shared/config/diagnostics.ts';
import type { Environment } from '../../shared/config/environment.ts';
import { readBounded } from '../../shared/config/read.ts';
import type { Path } from '../../shared/config/schema-walk.ts';
import { parseYaml, valueOf } from '../../shared/config/yaml-text.ts';

interface Secret {
  readonly variable: string;
  readonly path: Path;
  readonly read: (text: string) => string | string[];
}

const all = (text: string): string[] => text.split(',');
const first = (text: string): string => text.split(',', 1)[0] ?? '';
const whole = (text: string): string => text;

const ROUTER: readonly Secret[] = [
  { variable: 'SPILLWAY_LINK_SECRET', path: ['router', 'links', 'secrets'], read: all },
];
/** While the secret is rotated the variable may hold two: the first is the agent's. */
const AGENT: readonly Secret[] = [
  { variable: 'SPILLWAY_LINK_SECRET', path: ['agent', 'secret'], read: first },
  { variable: 'SPILLWAY_ENGINE_API_KEY', path: ['agent', 'apiKey'], read: whole },
];

/** `agent`: there is one, in the file or by flags; none is made up for its secrets. */
export function secretOverlays(
  environment: Environment,
  { agent }: { readonly agent: boolean },
): Overlay[] {
  return [...ROUTER, ...(agent ? AGENT : [])].flatMap(({ variable, path, read }) => {
    const text = environment[variable];
    if (text === undefined || text === '') return [];
    return [{ path, value: read(text), source: variable }];
  });
}

export function fileHasAgent(file: string | null): boolean {
  const read = file === null ? null : readBounded(file);
  return read !== null && read.ok && textHasAgent(read.text);
}

/** False where the text is not to be understood: the check itself says what is wrong with it. */
export function textHasAgent(text: string): boolean {
  const { document, problems } = parseYaml(text);
  const content = document === null || problems.length > 0 ? null : valueOf(document);
  if (content === null || 'problems' in content) return false;
  const { value } = content;
  return typeof value === 'object' && value !== null && 'agent' in value && value.agent !== null;
}
