// YAML as a configuration may use it: bounded in size and depth before it is built, every oddity a problem with its
// place. Nothing in it makes the reader throw or stand still.
//
//   tokens, depth   bounded by a look at the tokens alone: the builder recurses, and some of it is quadratic
//   keys            texts, each once in its section, and never `__proto__`, which objects take for something else
//   tags            none but those of plain values: `!!js` and the like mean nothing here
//   aliases         allowed, at most 100 values from them; one that contains itself is refused

import {
  isScalar,
  Lexer,
  LineCounter,
  parseDocument,
  visit,
  type Document,
  type ParsedNode,
  type YAMLMap,
} from 'yaml';
import type { Problem } from './diagnostics.ts';

/** Words, marks and spaces of a file: some ten for each line. */
const TOKENS_MAX = 150_000;
const DEPTH_MAX = 64;
const ALIASED_MAX = 100;
const PROBLEMS_MAX = 100;

const OPENING = new Set(['[', '{']);
const CLOSING = new Set([']', '}']);
/** Begin a value inside a value, on the same line. */
const NESTING = new Set(['-', '?', ':']);

export interface YamlText {
  /** Null where the text is too large or too deep to be built. */
  readonly document: Document<ParsedNode> | null;
  readonly lines: LineCounter;
  readonly problems: readonly Problem[];
}

/** Never throws. */
export function parseYaml(text: string): YamlText {
  const lines = new LineCounter();
  const excess = excessOf(text, lines);
  if (excess !== null) return { document: null, lines, problems: [excess] };
  const counter = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: counter,
    prettyErrors: false,
    uniqueKeys: false,
  });
  const faults = [...document.errors, ...document.warnings].slice(0, PROBLEMS_MAX);
  const syntax = faults.map((fault) => ({
    path: [],
    message: fault.message,
    offset: fault.pos[0],
  }));
  const problems =
    syntax.length > 0 ? syntax : [...keyProblems(document), ...aliasProblems(document)];
  return { document, lines: counter, problems };
}

/** What the text says; `problems` where that cannot be said. */
export function valueOf(
  document: Document,
): { readonly value: unknown } | { readonly problems: readonly Problem[] } {
  try {
    return { value: document.toJS({ maxAliasCount: ALIASED_MAX }) ?? null };
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    return { problems: [{ path: [], message, offset: 0 }] };
  }
}

/** Why the text is not even built. Fills in `lines`. */
function excessOf(text: string, lines: LineCounter): Problem | null {
  let offset = 0;
  let tokens = 0;
  let flow = 0;
  let marks = 0;
  lines.addNewLine(0);
  for (const token of new Lexer().lex(text)) {
    tokens += 1;
    if (OPENING.has(token)) flow += 1;
    if (CLOSING.has(token)) flow -= 1;
    if (flow === 0 && NESTING.has(token)) marks += 1;
    if (token.includes('\n')) marks = 0;
    if (flow > DEPTH_MAX || marks > DEPTH_MAX) {
      return { path: [], message: `is nested deeper than ${DEPTH_MAX} levels`, offset };
    }
    if (tokens > TOKENS_MAX) {
      return {
        path: [],
        message: `has more than ${TOKENS_MAX} words and marks up to here`,
        offset,
      };
    }
    offset += placedLength(token, lines, offset);
  }
  return null;
}

/** Characters of the text that a token stands for: the lexer adds three marks of its own. */
function placedLength(token: string, lines: LineCounter, offset: number): number {
  if (token === '\u0002' || token === '\u0018' || token === '\u001F') return 0;
  for (let at = token.indexOf('\n'); at >= 0; at = token.indexOf('\n', at + 1)) {
    lines.addNewLine(offset + at + 1);
  }
  return token.length;
}

function keyProblems(document: Document): Problem[] {
  const problems: Problem[] = [];
  visit(document, {
    Map(_key, map) {
      if (problems.length < PROBLEMS_MAX) problems.push(...keysOf(map));
    },
  });
  return problems;
}

function keysOf({ items }: YAMLMap): Problem[] {
  const seen = new Set<string>();
  const problems: Problem[] = [];
  for (const { key } of items) {
    const offset = (key as ParsedNode | null)?.range?.[0] ?? 0;
    const text = isScalar(key) ? String(key.value) : null;
    if (text === null) problems.push({ path: [], message: 'a key is a plain word', offset });
    else if (text === '__proto__') {
      problems.push({ path: [], message: 'unknown key: __proto__ names nothing', offset });
    } else if (seen.has(text)) {
      problems.push({ path: [], message: 'this key stands here a second time', offset });
    } else seen.add(text);
    if (problems.length >= PROBLEMS_MAX) break;
  }
  return problems;
}

/** Aliases of what they stand in, of nothing, or too many: each one is looked for in the whole document. */
function aliasProblems(document: Document): Problem[] {
  const problems: Problem[] = [];
  let count = 0;
  visit(document, {
    Alias(_key, alias, path) {
      count += 1;
      const offset = alias.range?.[0] ?? 0;
      if (count > ALIASED_MAX) {
        problems.push({ path: [], message: `more than ${ALIASED_MAX} aliases`, offset });
        return visit.BREAK;
      }
      const source = alias.resolve(document);
      const name = alias.source.slice(0, 64);
      if (source === undefined) {
        problems.push({ path: [], message: `nothing is anchored as &${name} before`, offset });
      } else if (path.some((above) => above === source)) {
        problems.push({ path: [], message: `*${name} stands inside of &${name}`, offset });
      }
      return undefined;
    },
  });
  return problems;
}
