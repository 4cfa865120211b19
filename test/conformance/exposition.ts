// An exposition in Prometheus' text format, read for the checks: families with types, series with labels. Written
// apart from the agent's reader on purpose, so that one cannot hide the other's mistakes.

export interface Series {
  /** Name of the sample: of a histogram with `_bucket`, `_count` or `_sum`. */
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly series: readonly Series[];
}

/** Families by name, in order. Throws on a line that is no exposition. */
export function parseExposition(text: string): ReadonlyMap<string, Family> {
  const families = new Map<
    string,
    { name: string; type: string; help: string; series: Series[] }
  >();
  const familyOf = (name: string) => {
    const known = families.get(name) ?? { name, type: 'untyped', help: '', series: [] };
    families.set(name, known);
    return known;
  };
  let current = familyOf('');
  families.clear();
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const comment = /^# (HELP|TYPE) (\S+) ?(.*)$/.exec(line);
    if (comment !== null) {
      current = familyOf(comment[2] ?? '');
      if (comment[1] === 'TYPE') current.type = comment[3] ?? '';
      else current.help = comment[3] ?? '';
    } else if (!line.startsWith('#')) current.series.push(parseSample(line));
  }
  return families;
}

function parseSample(line: string): Series {
  const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
  if (match === null) throw new Error(`no sample: ${line}`);
  return {
    name: match[1] ?? '',
    labels: parseLabels(match[2] ?? ''),
    value: numberOf(match[3] ?? ''),
  };
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const [, name = '', value = ''] of text.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
    labels[name] = value.replaceAll(/\\(.)/g, (_, char: string) => (char === 'n' ? '\n' : char));
  }
  return labels;
}

function numberOf(text: string): number {
  if (text === '+Inf') return Number.POSITIVE_INFINITY;
  if (text === '-Inf') return Number.NEGATIVE_INFINITY;
  const value = Number(text);
  if (Number.isNaN(value) && text !== 'NaN') throw new Error(`no number: ${text}`);
  return value;
}

/** Sum over the series of that name whose labels match; null where there is none. */
export function valueOf(
  families: ReadonlyMap<string, Family>,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | null {
  let sum: number | null = null;
  for (const family of families.values()) {
    for (const each of family.series) {
      if (each.name !== name) continue;
      if (Object.entries(labels).some(([label, value]) => each.labels[label] !== value)) continue;
      sum = (sum ?? 0) + each.value;
    }
  }
  return sum;
}
