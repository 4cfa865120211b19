// Lines of a Prometheus exposition as Python's client writes them, labels in alphabetical order.

export type Labels = Readonly<Record<string, string>>;

export function sampleLine(name: string, labels: Labels, value: number): string {
  const names = Object.keys(labels).toSorted();
  if (names.length === 0) return `${name} ${formatFloat(value)}`;
  const text = names.map((label) => `${label}="${escapeLabel(labels[label] ?? '')}"`).join(',');
  return `${name}{${text}} ${formatFloat(value)}`;
}

export function familyLines(name: string, type: string, help: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function escapeLabel(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}

/** As Python's Prometheus client writes it: `16046.0`, from 1e6 on `1.796e+09`. */
export function formatFloat(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (!Number.isFinite(value)) return value > 0 ? '+Inf' : '-Inf';
  const plain = Number.isInteger(value) ? `${value}.0` : String(value);
  const dot = plain.indexOf('.');
  if (value <= 0 || dot <= 6 || plain.includes('e')) return plain;
  const digits = `${plain[0]}.${plain.slice(1, dot)}${plain.slice(dot + 1)}`.replace(/[0.]+$/, '');
  return `${digits}e+0${dot - 1}`;
}
