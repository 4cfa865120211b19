// Every warning and error that the sources can log, by its code: the text that stands in the line's `msg`.
//
// Read from the calls themselves: `log(level, code, fields)` and `log.warn(fields, code)`, under whatever name ends in
// `log`. A level that is computed counts as a warning; a code that is chosen among literals, in the call or in a `const`
// of its file, counts as each of them. What is left are methods that pass on a level and a code of their callers: such a
// method is named `log` or `say`, and its calls are read instead.

import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const ROLES = ['agent', 'router', 'shared', 'bin'];
const CALL = /\b#?log(?:\.(warn|error|fatal)|\[[^\]]+\])?\(/gi;
const PASSED_ON = /\bsay\(\s*'(?:warn|error)',\s*'((?:[^'\\]|\\.)*)'/g;
const QUIET = new Set(["'debug'", "'info'"]);
const LITERALS = /'((?:[^'\\]|\\.)*)'/g;
/** Lines that are written without a logger. */
const RAW = /\bmsg: '((?:[^'\\]|\\.)*)'/g;

export interface LogCode {
  readonly code: string;
  readonly file: string;
}

export interface LogCodes {
  readonly codes: readonly LogCode[];
  /** Calls whose code is computed, as `file: arguments`. */
  readonly unreadable: readonly string[];
}

export function logCodes(): LogCodes {
  const found = ROLES.flatMap((role) => sources(join(ROOT, role))).map((path) =>
    codesOf(readFileSync(path, 'utf8'), relative(ROOT, path)),
  );
  return {
    codes: found.flatMap(({ codes }) => codes),
    unreadable: found.flatMap(({ unreadable }) => unreadable),
  };
}

export function codesOf(source: string, file: string): LogCodes {
  const codes: LogCode[] = [];
  const unreadable: string[] = [];
  for (const match of source.matchAll(CALL)) {
    const from = match.index + match[0].length;
    const words = argumentsAt(source, from);
    if (isDeclaration(words) || isMath(source, match.index)) continue;
    const plain = match[0].endsWith('log(') || match[0].endsWith('Log(');
    if (plain && QUIET.has(words[0] ?? '')) continue;
    const choices = (plain ? words.slice(1) : words.slice(-1))
      .filter((word) => !word.startsWith('{'))
      .map((word) => literals(word, source))
      .find((texts) => texts.length > 0);
    if (choices === undefined) unreadable.push(`${file}: ${words.join(', ')}`);
    for (const code of choices ?? []) codes.push({ code, file });
  }
  for (const pattern of [RAW, PASSED_ON]) {
    for (const [, code = ''] of source.matchAll(pattern)) codes.push({ code, file });
  }
  return { codes, unreadable };
}

/** The texts that an expression can be: its own (but what it compares with), or those of the `const` that it names. */
function literals(word: string, source: string): string[] {
  const expression = /^\w+$/.test(word)
    ? (new RegExp(`\\bconst ${word} =([^;]*);`).exec(source)?.[1] ?? '')
    : word;
  const compared = expression.replaceAll(/[!=]== '[^']*'/g, '');
  return Array.from(compared.matchAll(LITERALS), ([, text = '']) => text);
}

function isDeclaration(words: readonly string[]): boolean {
  return words.length === 0 || words.some((word) => /^\w+\??: /.test(word));
}

function isMath(source: string, at: number): boolean {
  return /(Math|console)\.$/.test(source.slice(Math.max(0, at - 8), at));
}

/** The arguments of a call, as written, from behind its bracket. */
function argumentsAt(source: string, from: number): string[] {
  const words: string[] = [];
  let depth = 0;
  let word = '';
  for (let at = from; at < source.length; at += 1) {
    const sign = source[at] ?? '';
    if (sign === "'" || sign === '`' || sign === '"') {
      const end = endOfText(source, at);
      word += source.slice(at, end + 1);
      at = end;
      continue;
    }
    if ('([{'.includes(sign)) depth += 1;
    if (')]}'.includes(sign)) depth -= 1;
    if (depth < 0) break;
    if (sign === ',' && depth === 0) {
      words.push(word.trim());
      word = '';
    } else word += sign;
  }
  return [...words, word.trim()].filter((each) => each !== '');
}

function endOfText(source: string, from: number): number {
  const quote = source[from];
  for (let at = from + 1; at < source.length; at += 1) {
    if (source[at] === '\\') at += 1;
    else if (source[at] === quote) return at;
  }
  return source.length;
}

function sources(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter(({ name }) => name.endsWith('.ts') && !/\.(test|harness)\.ts$/.test(name))
    .map(({ parentPath, name }) => join(parentPath, name));
}
