// How recordings are written.

/** JSON with an element of a list a line, so that recordings can be read and compared. */
export function linesOf(value: object): string {
  const members = Object.entries(value).map(([name, each]: [string, unknown]) => {
    const lists = Array.isArray(each) && each.some((item) => typeof item === 'object');
    const text = lists
      ? `[\n${(each as unknown[]).map((item) => JSON.stringify(item)).join(',\n')}\n]`
      : JSON.stringify(each);
    return `${JSON.stringify(name)}: ${text}`;
  });
  return `{\n${members.join(',\n')}\n}\n`;
}
