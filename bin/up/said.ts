// What a file says by itself, before anything is laid over it or checked: `up` fills in only what is not there. A text that
// cannot be understood says nothing here; the check itself says what is wrong with it.

import { substitute, type Environment } from '../../shared/config/environment.ts';
import type { Path } from '../../shared/config/schema-walk.ts';
import { parseYaml, valueOf } from '../../shared/config/yaml-text.ts';

/** The value at a path; undefined where there is none, or null. */
export type Said = (...path: Path) => unknown;

export const NOTHING_SAID: Said = () => undefined;

export function saidBy(text: string, environment: Environment): Said {
  const { document, problems } = parseYaml(text);
  if (document === null || problems.length > 0) return NOTHING_SAID;
  substitute(document, environment);
  const content = valueOf(document);
  if ('problems' in content) return NOTHING_SAID;
  return (...path) => {
    let value: unknown = content.value;
    for (const step of path) {
      if (typeof value !== 'object' || value === null || !Object.hasOwn(value, step)) return;
      value = (value as Record<string | number, unknown>)[step];
    }
    return value ?? undefined;
  };
}

/** Elements of a list; empty where there is none. */
export function listAt(said: Said, ...path: Path): readonly unknown[] {
  const value = said(...path);
  return Array.isArray(value) ? (value as readonly unknown[]) : [];
}
