// Problems of a configuration, in words that say where and what to do. A problem stands at a place of the file, or
// at the flag or environment variable that the value came from. Values are never quoted where they may be secret.

import { isMap, isPair, isScalar, isSeq, type LineCounter, type Document, type Node } from 'yaml';
import type { z } from 'zod';
import { formatPath, keysAt, nodeAt, type Path, type SchemaNode } from './schema-walk.ts';
import { didYouMean } from './suggest.ts';

export interface Problem {
  readonly path: Path;
  readonly message: string;
  /** Place in the file by offset, where the reader already knows it: what stands there could not be read. */
  readonly offset?: number;
  /** The key itself is at fault, not its value. */
  readonly atKey?: boolean;
}

/** A value from a flag or environment variable in place of the file's. */
export interface Overlay {
  readonly path: Path;
  readonly value: unknown;
  /** `--pool` or `SPILLWAY_POOL`. */
  readonly source: string;
}

export interface Source {
  /** Null where there is no file: everything came from flags and environment. */
  readonly file: string | null;
  readonly document: Document | null;
  readonly lines: LineCounter;
  readonly overlays: readonly Overlay[];
}

/** Problems that are told: who has more will look again. */
const TOLD_MAX = 100;
/** Characters of one of them: a key may be a whole file. */
const LINE_MAX = 500;

/**
 * All problems in the order of the file, one a line: `fleet.yaml:3:5: pools[0].id: is missing`. Of very many, the
 * first that were found. Of a value that could not be read nothing else is said.
 */
export function formatProblems(problems: readonly Problem[], source: Source): string {
  const unread = new Set(problems.flatMap(({ offset }) => offset ?? []));
  const found = problems.slice(0, TOLD_MAX).map((problem) => {
    const overlay = overlayAt(problem.path, source.overlays);
    const offset = overlay === null ? offsetOf(problem, source.document) : null;
    return { problem, overlay, offset };
  });
  const placed = found.filter(
    ({ problem, offset }) => problem.offset !== undefined || offset === null || !unread.has(offset),
  );
  placed.sort((a, b) => (a.offset ?? -1) - (b.offset ?? -1));
  const left = problems.length - found.length;
  const more = left === 0 ? [] : [`${source.file ?? 'flags'}: and ${left} more problems`];
  const told = placed.map(({ problem, overlay, offset }) => {
    const field = problem.path.length === 0 ? '' : `${formatPath(problem.path)}: `;
    if (overlay !== null)
      return `${overlay.source}: ${sectionOf(problem.path, overlay)}${problem.message}`;
    if (source.file === null) return `${field}${problem.message}`;
    if (offset === null) return `${source.file}: ${field}${problem.message}`;
    const { line, col } = source.lines.linePos(offset);
    return `${source.file}:${line}:${col}: ${field}${problem.message}`;
  });
  return [...told, ...more].map((line) => shortened(line)).join('\n');
}

function shortened(line: string): string {
  return line.length <= LINE_MAX ? line : `${line.slice(0, LINE_MAX)}…`;
}

/** Where inside of what a flag gave: other flags fill its elements, as `--engine-unit` those of `--engine` (URLs). */
function sectionOf(path: Path, overlay: Overlay): string {
  const keys = path.slice(overlay.path.length).filter((key) => typeof key === 'string');
  const itself = keys.length === 0 || (keys.length === 1 && keys[0] === 'url');
  return itself ? '' : `${keys.join('.')}: `;
}

/** The one that decided: the innermost, and of those the one laid last. */
function overlayAt(path: Path, overlays: readonly Overlay[]): Overlay | null {
  let best: Overlay | null = null;
  for (const overlay of overlays) {
    const inside = overlay.path.every((step, i) => path[i] === step);
    if (inside && overlay.path.length >= (best?.path.length ?? 0)) best = overlay;
  }
  return best;
}

function offsetOf(problem: Problem, document: Document | null): number | null {
  if (problem.offset !== undefined) return problem.offset;
  let node = document?.contents as Node | null | undefined;
  let offset = node?.range?.[0] ?? null;
  for (const [depth, step] of problem.path.entries()) {
    const last = depth === problem.path.length - 1;
    if (isMap(node)) {
      const pair = node.items.find((item) => isPair(item) && keyText(item.key) === String(step));
      if (pair === undefined) return offset;
      const key = pair.key as Node;
      const value = pair.value as Node | null;
      offset =
        (last && problem.atKey === true ? null : value?.range?.[0]) ?? key.range?.[0] ?? offset;
      node = value;
    } else if (isSeq(node) && typeof step === 'number') {
      node = node.items[step] as Node | undefined;
      offset = node?.range?.[0] ?? offset;
    } else return offset;
  }
  return offset;
}

function keyText(key: unknown): string {
  return isScalar(key) ? String(key.value) : String(key);
}

/** What the schema found, as problems. `raw` is the value that was checked. */
export function problemsOf(
  issues: readonly z.core.$ZodIssue[],
  raw: unknown,
  schema: SchemaNode,
): readonly Problem[] {
  const mistyped = new Set(
    issues.filter(({ code }) => code === 'invalid_type').map(({ path }) => path.join(' ')),
  );
  return issues.flatMap((issue): Problem[] => {
    // What has another type has no length or range to speak of.
    const isNext = issue.code !== 'invalid_type' && mistyped.has(issue.path.join(' '));
    if (isNext) return [];
    const path = issue.path.map((step) => (typeof step === 'symbol' ? String(step) : step));
    if (issue.code !== 'unrecognized_keys') {
      return [{ path, message: messageOf(issue, valueAt(raw, path), nodeAt(schema, path)) }];
    }
    const known = keysAt(schema, path);
    return issue.keys.map((key, at) => ({
      path: [...path, key],
      atKey: true,
      message: `unknown key${at < TOLD_MAX ? didYouMean(key, known) : ''}`,
    }));
  });
}

function messageOf(issue: z.core.$ZodIssue, value: unknown, node: SchemaNode | null): string {
  const unit = unitOf(node);
  switch (issue.code) {
    case 'invalid_type':
      return typeMessage(issue.expected, value, node);
    case 'too_small':
      return issue.origin === 'number' || issue.origin === 'int'
        ? `must be at least ${issue.minimum}${unit}`
        : `must have at least ${issue.minimum} ${issue.origin === 'array' ? 'element' : 'character'}`;
    case 'too_big':
      return issue.origin === 'number' || issue.origin === 'int'
        ? `must be at most ${issue.maximum}${unit}`
        : `must have at most ${issue.maximum} ${issue.origin === 'array' ? 'elements' : 'characters'}`;
    case 'invalid_value': {
      const options = issue.values.map(String);
      const near = typeof value === 'string' ? didYouMean(value, options) : '';
      return `must be one of ${options.join(', ')}${near}`;
    }
    default:
      return issue.message;
  }
}

function typeMessage(expected: string, value: unknown, node: SchemaNode | null): string {
  const article = /^[aeio]/.test(expected) ? 'an' : 'a';
  const wanted =
    expected === 'object' || expected === 'record' ? 'a section of keys' : `${article} ${expected}`;
  if (value === undefined) return `is missing${elsewhere(node)}`;
  if (value === null) return `is empty; give ${wanted} or remove the key`;
  if (expected === 'number' && typeof value === 'string') {
    return `must be a plain number${node?.['x-unit'] === undefined ? '' : ` in ${node['x-unit']}`}, not a text`;
  }
  if (expected === 'int') return 'must be a whole number';
  return `must be ${wanted}, not ${kindOf(value)}`;
}

/** Where else a missing value may come from. */
function elsewhere(node: SchemaNode | null): string {
  const places = [node?.['x-flag'], node?.['x-env']].filter((place) => place !== undefined);
  return places.length === 0 ? '' : ` (or set ${places.join(' or ')})`;
}

function unitOf(node: SchemaNode | null): string {
  const unit = node?.['x-unit'];
  return unit === undefined || unit === 'count' || unit === 'ratio' ? '' : ` ${unit}`;
}

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'a section of keys' : `a ${typeof value}`;
}

function valueAt(raw: unknown, path: Path): unknown {
  let value = raw;
  for (const step of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = (value as Record<string | number, unknown>)[step];
  }
  return value;
}
