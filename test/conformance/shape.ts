// The shape of JSON: names of members in order, kinds of values, nothing of the values themselves.
//
// Elements of a list are told once for each shape that occurs, in the order of first occurrence, so that lists of
// different lengths have one shape.

/** Members in order and types, as text: equal texts are equal shapes. */
export function shapeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return `[${[...new Set(value.map(shapeOf))].join(' | ')}]`;
  if (typeof value !== 'object') return typeof value;
  const members = Object.entries(value).map(([name, each]) => `${name}: ${shapeOf(each)}`);
  return `{ ${members.join(', ')} }`;
}

/** The shape of a text that is JSON; the text itself where it is not. */
export function shapeOfText(text: string): string {
  try {
    return shapeOf(JSON.parse(text));
  } catch {
    return JSON.stringify(text);
  }
}
