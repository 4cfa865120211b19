// `docs/configuration.md` out of the schema of `fleet.yaml`.

import { isReloadable } from '../shared/config/restart.ts';
import { fleetJsonSchema } from '../shared/config/schema.ts';
import { formatPath, valueNode, type Path, type SchemaNode } from '../shared/config/schema-walk.ts';
import { table } from './generate-table.ts';

const INTRODUCTION = `# Configuration

<!-- Made by \`npm run docs\` from shared/config/. Change the schema, not this page. -->

One file, \`fleet.yaml\`, serves all roles: every process reads its own part of it. Nothing in it is required: a router
needs no file, and an agent needs only to know its engines. What follows is every field, with its unit, its bounds and
its default.

- **Flags and environment variables** win over the file: flag, then environment, then file, then default. Fields that
  have one name it below; every other field is reached with \`--set path=value\`
  (\`--set router.routing.holdMs=80\`).
- **Numbers** are written in the unit that the name of the field ends in: \`holdMs: 60\` is 60 milliseconds.
- **Secrets** are best written as \`\${NAME}\`: the value of that environment variable. One that is not set, or empty, is an
  error. \`$\${\` is a plain \`\${\`.
- **Errors** come all at once, each with file, line and column. An unknown key is an error. \`spillway validate -f FILE\`
  checks a file, \`spillway schema\` prints the JSON Schema for editors.
- **Reload**: a router that was started with \`--config\` takes changes of the file while it runs: when it is written, when
  another file is renamed onto it, when a ConfigMap is swapped, and on SIGHUP. A change is taken as a whole or not at all; while
  the file is broken the last good configuration stays, and \`/status\`, \`spillway_config_last_reload_ok\` and the log say so.
  Fields marked "live" are swapped; a change of any other is named in the log and in \`/status\`, and waits for a restart. An
  agent reads the file at its start only.
- **Certificates** are named by file. A file that changes is read again within 5 s, by routers and agents, whatever
  becomes of this one ([security.md](security.md)).

Listeners are on loopback unless told otherwise. Clients from other machines need keys, certificates or
\`router.clients.access: open\`, agents from other machines a secret or certificates.
`;

export function configurationPage(): string {
  const schema: SchemaNode = fleetJsonSchema();
  return `${INTRODUCTION}\n${section('Top level', schema, [])}`;
}

/** One table of plain fields, then one section for each section inside it. */
function section(title: string, node: SchemaNode, path: Path): string {
  const inner: string[] = [];
  const rows: string[][] = [];
  for (const [key, raw] of Object.entries(node.properties ?? {})) {
    const child = valueNode(raw);
    const next = placeOf(child, [...path, key]);
    if (next === null) rows.push(fieldRow(key, child, [...path, key]));
    else inner.push(section(`\`${next.title}\``, { ...next.node, ...described(child) }, next.path));
  }
  const about = node.description === undefined ? '' : `${node.description}\n\n`;
  const head = ['field', 'value', 'default', 'flag, environment', '', 'what it is'];
  const fields = rows.length === 0 ? '' : `${table(head, rows)}\n`;
  return [`## ${title}\n\n${about}${fields}`, ...inner].join('\n');
}

interface Place {
  readonly title: string;
  readonly node: SchemaNode;
  readonly path: Path;
}

/** Where a field's own fields are: in itself, in its elements, under its names. Null for a plain field. */
function placeOf(node: SchemaNode, path: Path): Place | null {
  const name = formatPath(path);
  if (node.properties !== undefined) return { title: name, node, path };
  if (node.items?.properties !== undefined) {
    return { title: `${name}[]`, node: node.items, path: [...path, 0] };
  }
  const extra = node.additionalProperties;
  if (typeof extra === 'object' && extra.properties !== undefined) {
    return { title: `${name}.<name>`, node: extra, path: [...path, '<name>'] };
  }
  return null;
}

function described(node: SchemaNode): { description?: string } {
  return node.description === undefined ? {} : { description: node.description };
}

/** Swapped by every kind of router that reads it. */
function isLive(field: string): boolean {
  return isReloadable(field, field.startsWith('global.') ? 'global' : 'router');
}

function fieldRow(key: string, node: SchemaNode, path: Path): string[] {
  const sources = [node['x-flag'], node['x-env']].filter((source) => source !== undefined);
  return [
    `\`${key}\``,
    valueText(node),
    defaultText(node),
    sources.map((source) => `\`${source}\``).join(' '),
    isLive(formatPath(path)) ? 'live' : '',
    node.description ?? '',
  ];
}

function valueText(node: SchemaNode): string {
  if (node.enum !== undefined) return node.enum.map((value) => `\`${String(value)}\``).join(', ');
  if (node.type === 'array') return `list of ${valueText(node.items ?? {})}`;
  if (node.type === 'number' || node.type === 'integer') {
    const unit = node['x-unit'] ?? '';
    return `${number(node.minimum)} to ${number(node.maximum)} ${unit}`.trim();
  }
  if (node['x-secret'] === true) return 'secret';
  return typeof node.type === 'string' ? node.type : 'text';
}

function number(value: number | undefined): string {
  return value === undefined ? '…' : value.toLocaleString('en-US');
}

function defaultText(node: SchemaNode): string {
  if (node.default === undefined) return 'required';
  return `\`${JSON.stringify(node.default)}\``;
}
