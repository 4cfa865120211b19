// Looks into the JSON Schema of `fleet.yaml` by path: which keys a section has, and how a field is described.
// Diagnostics and the generated reference read the one schema through it.

export interface SchemaNode {
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly properties?: Readonly<Record<string, SchemaNode>>;
  readonly required?: readonly string[];
  readonly items?: SchemaNode;
  readonly additionalProperties?: SchemaNode | boolean;
  readonly anyOf?: readonly SchemaNode[];
  readonly 'x-unit'?: string;
  readonly 'x-flag'?: string;
  readonly 'x-env'?: string;
  readonly 'x-secret'?: boolean;
}

export type Path = readonly (string | number)[];

/** The alternative that is not `null`, with the description of the whole. */
export function valueNode(node: SchemaNode): SchemaNode {
  const inner = node.anyOf?.find((option) => option.type !== 'null');
  return inner === undefined ? node : { ...valueNode(inner), ...withoutAnyOf(node) };
}

function withoutAnyOf(node: SchemaNode): SchemaNode {
  const { anyOf: _, ...rest } = node;
  return rest;
}

export function nodeAt(root: SchemaNode, path: Path): SchemaNode | null {
  let node: SchemaNode | undefined = valueNode(root);
  for (const step of path) {
    const extra: SchemaNode | boolean | undefined = node.additionalProperties;
    const next: SchemaNode | undefined =
      typeof step === 'number'
        ? node.items
        : (node.properties?.[step] ?? (typeof extra === 'object' ? extra : undefined));
    if (next === undefined) return null;
    node = valueNode(next);
  }
  return node;
}

export function keysAt(root: SchemaNode, path: Path): readonly string[] {
  return Object.keys(nodeAt(root, path)?.properties ?? {});
}

/** `pools[0].apiKey`. */
export function formatPath(path: Path): string {
  let text = '';
  for (const step of path) {
    if (typeof step === 'number') text += `[${step}]`;
    else text += text === '' ? step : `.${step}`;
  }
  return text;
}
