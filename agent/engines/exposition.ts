// Prometheus text exposition, as far as samples go: HELP and TYPE are not needed, and some engines lack them.
//
// Names are filtered before labels are read: of the 60 KB that an engine exposes, a few dozen lines matter. Labels
// may hold any character, escaped; values may be +Inf, -Inf, NaN or have exponents; a timestamp may follow. A line
// that is none of it is counted and skipped.

export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** May be NaN or infinite. */
  readonly value: number;
}

export interface Exposition {
  readonly samples: readonly Sample[];
  readonly malformedLines: number;
  /** `maxSamples` was reached: the rest is missing. */
  readonly cut: boolean;
}

const MAX_SAMPLES = 20_000;
const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const LABEL = /\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))/y;
const VALUE = /^\s+(\S+)(?:\s+-?\d+)?\s*(?:#.*)?$/;

/** Samples whose name `wanted` maps to a name; null leaves it out. */
export function parseExposition(
  text: string,
  wanted: (name: string) => string | null,
  maxSamples: number = MAX_SAMPLES,
): Exposition {
  const samples: Sample[] = [];
  let malformedLines = 0;
  let at = 0;
  while (at < text.length) {
    const end = text.indexOf('\n', at);
    const line = text.slice(at, end < 0 ? text.length : end);
    at = end < 0 ? text.length : end + 1;
    const parsed = parseLine(line, wanted);
    if (parsed === 'malformed') malformedLines += 1;
    else if (parsed !== null && samples.length >= maxSamples) {
      return { samples, malformedLines, cut: true };
    } else if (parsed !== null) samples.push(parsed);
  }
  return { samples, malformedLines, cut: false };
}

function parseLine(
  raw: string,
  wanted: (name: string) => string | null,
): Sample | 'malformed' | null {
  const line = raw.trimStart();
  if (line === '' || line === '\r' || line.startsWith('#')) return null;
  const written = NAME.exec(line)?.[0];
  if (written === undefined) return 'malformed';
  const name = wanted(written);
  if (name === null) return null;
  let rest = line.slice(written.length);
  let labels: Record<string, string> = {};
  if (rest.startsWith('{')) {
    const block = parseLabels(rest);
    if (block === null) return 'malformed';
    labels = block.labels;
    rest = rest.slice(block.length);
    if (!/^\s/.test(rest)) rest = ` ${rest}`;
  }
  const value = VALUE.exec(rest)?.[1];
  const number = value === undefined ? null : parseNumber(value);
  return number === null ? 'malformed' : { name, labels, value: number };
}

/** The labels of `text`, which begins with `{`, and how many characters they take; null where they do not end. */
function parseLabels(text: string): { labels: Record<string, string>; length: number } | null {
  const labels: Record<string, string> = Object.create(null) as Record<string, string>;
  let at = 1;
  for (;;) {
    const close = /^\s*\}/.exec(text.slice(at, at + 64));
    if (close !== null) return { labels, length: at + close[0].length };
    LABEL.lastIndex = at;
    const match = LABEL.exec(text);
    if (match === null) return null;
    labels[match[1] ?? ''] = unescapeLabel(match[2] ?? '');
    at = LABEL.lastIndex;
  }
}

function unescapeLabel(value: string): string {
  if (!value.includes('\\')) return value;
  return value.replace(/\\(.)/g, (_whole, character: string) =>
    character === 'n' ? '\n' : character,
  );
}

/** Null where `text` is no number of the format. */
function parseNumber(text: string): number | null {
  const lower = text.toLowerCase();
  if (lower === 'nan') return Number.NaN;
  const infinity = /^([+-]?)inf(?:inity)?$/.exec(lower);
  if (infinity !== null) return infinity[1] === '-' ? -Infinity : Infinity;
  if (!/^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/.test(lower)) return null;
  return Number(text);
}
