// What a PromQL expression asks for: metrics with the labels that it matches on, and the labels that it groups by. Not a
// parser of PromQL: names of ours are known by their prefix.

export interface Query {
  readonly metrics: readonly {
    readonly name: string;
    readonly matchers: readonly { readonly label: string; readonly values: readonly string[] }[];
  }[];
  /** Of `by`, `without`, `on`, `ignoring`, `group_left` and legends. */
  readonly labels: readonly string[];
}

export function queryOf(expression: string): Query {
  const metrics = Array.from(
    expression.matchAll(/\b(spillway_\w+)(?:\{([^}]*)\})?/g),
    ([, name = '', matchers = '']) => ({ name, matchers: matchersOf(matchers) }),
  );
  const groups = expression.matchAll(/\b(?:by|without|on|ignoring|group_left)\s*\(([^)]*)\)/g);
  const legends = expression.matchAll(/\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}/g);
  const grouped = Array.from(groups, ([, list = '']) => list.split(',')).flat();
  const labels = [...grouped, ...Array.from(legends, ([, label = '']) => label)];
  return { metrics, labels: labels.map((label) => label.trim()).filter((label) => label !== '') };
}

function matchersOf(text: string): { label: string; values: string[] }[] {
  return Array.from(
    text.matchAll(/(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"/g),
    ([, label = '', value = '']) => ({ label, values: value.split('|') }),
  );
}
