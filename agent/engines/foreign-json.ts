// Reading JSON of engines, whose versions differ: what is not there, or is of another type, is null.

export type JsonObject = Readonly<Record<string, unknown>>;

/** Null where `text` is no JSON object. */
export function parseObject(text: string): JsonObject | null {
  return objectOf(parseJson(text));
}

/** Null where `text` is no JSON array. */
export function parseArray(text: string): readonly unknown[] | null {
  const value = parseJson(text);
  return Array.isArray(value) ? (value as unknown[]) : null;
}

export function objectOf(value: unknown): JsonObject | null {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? (value as JsonObject) : null;
}

export function arrayOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}

/** A finite number, 0 or more. */
export function amountOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
}

/** A size or a limit: 0 says that it is not set. */
export function positiveOf(value: unknown): number | null {
  const amount = amountOf(value);
  return amount === null || amount === 0 ? null : amount;
}

export function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // What is not JSON is not an engine's answer; the caller says so.
    return null;
  }
}
