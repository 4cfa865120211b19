// From text, flags and environment to one checked, frozen configuration, or to all problems at once.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { LineCounter, parseDocument, type Document, type YAMLError } from 'yaml';
import { crossProblems } from './cross.ts';
import { formatProblems, problemsOf, type Overlay, type Problem } from './diagnostics.ts';
import { substitute, type Environment } from './environment.ts';
import { fleetJsonSchema, fleetSchema, type FleetConfig } from './schema.ts';
import type { Path, SchemaNode } from './schema-walk.ts';

/** A larger file is no configuration. */
const FILE_BYTES_MAX = 1_048_576;

export interface FleetInput {
  /** Null where there is no file. */
  readonly file: string | null;
  readonly text: string;
  readonly environment: Environment;
  readonly overlays: readonly Overlay[];
}

export type FleetResult =
  /** `text` is what it was made from. */
  | { readonly ok: true; readonly config: FleetConfig; readonly text: string }
  /** One problem a line. */
  | { readonly ok: false; readonly error: string };

export function parseFleet(input: FleetInput): FleetResult {
  const lines = new LineCounter();
  const document = input.file === null ? null : parseYaml(input.text, lines);
  const source = { file: input.file, document, lines, overlays: input.overlays };
  const fail = (problems: readonly Problem[]): FleetResult => ({
    ok: false,
    error: formatProblems(problems, source),
  });
  const broken = document === null ? [] : document.errors.map((error) => yamlProblem(error));
  if (broken.length > 0) return fail(broken);
  const unset = document === null ? [] : substitute(document, input.environment);
  const raw = overlaid(document, input.overlays);
  if (raw === null) return fail([{ path: [], message: 'is empty' }]);
  const parsed = fleetSchema.safeParse(raw);
  if (!parsed.success) {
    const schema: SchemaNode = fleetJsonSchema();
    return fail([...unset, ...problemsOf(parsed.error.issues, raw, schema)]);
  }
  const pools = isSection(raw) && Object.hasOwn(raw, 'pools');
  const problems = [...unset, ...crossProblems(parsed.data, { pools })];
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

export type ReadResult =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly error: string };

export function readBounded(file: string): ReadResult {
  let handle: number | null = null;
  try {
    handle = openSync(file, 'r');
    const { size } = fstatSync(handle);
    if (size > FILE_BYTES_MAX) {
      return { ok: false, error: `${file}: is larger than ${FILE_BYTES_MAX} bytes` };
    }
    const buffer = Buffer.alloc(FILE_BYTES_MAX + 1);
    return { ok: true, text: buffer.toString('utf8', 0, readSync(handle, buffer)) };
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    return { ok: false, error: `${file}: cannot be read: ${reason}` };
  } finally {
    if (handle !== null) closeSync(handle);
  }
}

function parseYaml(text: string, lines: LineCounter): Document {
  return parseDocument(text, { lineCounter: lines, prettyErrors: false, uniqueKeys: true });
}

function yamlProblem(error: YAMLError): Problem {
  const message =
    error.code === 'DUPLICATE_KEY' ? 'this key stands here a second time' : error.message;
  return { path: [], message, offset: error.pos[0] };
}

/** The file's content with flags and environment laid over it. Null when a file has no content. */
function overlaid(document: Document | null, overlays: readonly Overlay[]): unknown {
  const content: unknown = document === null ? {} : (document.toJS({ maxAliasCount: 100 }) ?? null);
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
