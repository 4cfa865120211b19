// From text, flags and environment to one checked, frozen configuration, or to all problems at once.

import { LineCounter } from 'yaml';
import { crossProblems } from './cross.ts';
import { formatProblems, problemsOf, type Overlay, type Problem } from './diagnostics.ts';
import { substitute, type Environment } from './environment.ts';
import { readBounded } from './read.ts';
import { fleetJsonSchema, fleetSchema, type FleetConfig } from './schema.ts';
import type { Path, SchemaNode } from './schema-walk.ts';
import { parseYaml, valueOf } from './yaml-text.ts';

export interface FleetInput {
  /** Null where there is no file. */
  readonly file: string | null;
  readonly text: string;
  readonly environment: Environment;
  readonly overlays: readonly Overlay[];
  /** What else must hold of a configuration that is good; absent: nothing. */
  readonly checks?: (config: FleetConfig) => readonly Problem[];
}

export type FleetResult =
  /** `text` is what it was made from. */
  | { readonly ok: true; readonly config: FleetConfig; readonly text: string }
  /** One problem a line. */
  | { readonly ok: false; readonly error: string };

/** The schema as diagnostics look into it; always the same, and slow to make. */
let described: SchemaNode | null = null;

/** Never throws, whatever the text is. */
export function parseFleet(input: FleetInput): FleetResult {
  const yaml = input.file === null ? null : parseYaml(input.text);
  const document = yaml?.document ?? null;
  const lines = yaml?.lines ?? new LineCounter();
  const source = { file: input.file, document, lines, overlays: input.overlays };
  const fail = (problems: readonly Problem[]): FleetResult => ({
    ok: false,
    error: formatProblems(problems, source),
  });
  if (yaml !== null && yaml.problems.length > 0) return fail(yaml.problems);
  const unset = document === null ? [] : substitute(document, input.environment);
  const content = document === null ? { value: {} } : valueOf(document);
  if ('problems' in content) return fail(content.problems);
  const raw = overlaid(content.value, input.overlays);
  if (raw === null) return fail([{ path: [], message: 'is empty' }]);
  const parsed = fleetSchema.safeParse(raw);
  if (!parsed.success) {
    described ??= fleetJsonSchema();
    return fail([...unset, ...problemsOf(parsed.error.issues, raw, described)]);
  }
  const given = (key: string): boolean => isSection(raw) && Object.hasOwn(raw, key);
  const facts = { pools: given('pools'), region: given('region') };
  const broken = [...unset, ...crossProblems(parsed.data, facts)];
  const problems = broken.length > 0 ? broken : (input.checks?.(parsed.data) ?? []);
  if (problems.length > 0) return fail(problems);
  return { ok: true, config: deepFreeze(parsed.data), text: input.text };
}

/** Reads `file` (null: flags and environment alone) and parses it. */
export function loadFleet(
  file: string | null,
  environment: Environment,
  overlays: readonly Overlay[],
): FleetResult {
  if (file === null) return parseFleet({ file, text: '', environment, overlays });
  const read = readBounded(file);
  return read.ok ? parseFleet({ file, text: read.text, environment, overlays }) : read;
}

/** The file's content with flags and environment laid over it. Null when a file has no content. */
function overlaid(content: unknown, overlays: readonly Overlay[]): unknown {
  if (isSection(content)) for (const { path, value } of overlays) put(content, path, value);
  return content;
}

function isSection(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function put(root: Record<string, unknown>, path: Path, value: unknown): void {
  let place: Record<string | number, unknown> = root;
  for (const [depth, step] of path.slice(0, -1).entries()) {
    const inner = Object.hasOwn(place, step) ? place[step] : undefined;
    const empty = typeof path[depth + 1] === 'number' ? [] : {};
    const next = typeof inner === 'object' && inner !== null ? inner : empty;
    place[step] = next;
    place = next as Record<string | number, unknown>;
  }
  const last = path.at(-1);
  if (last !== undefined) place[last] = value;
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  for (const inner of Object.values(value)) deepFreeze(inner);
  return Object.freeze(value);
}
