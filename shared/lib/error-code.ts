// The code by which Node and its clients name what went wrong, however deep it is wrapped.

const DEPTH = 5;

/** The first code found: a refused connection to a name with two addresses is an error of errors. */
export function errorCode(error: unknown): string | null {
  let inner: unknown = error;
  for (let depth = 0; depth < DEPTH && inner instanceof Error; depth += 1) {
    const code = (inner as { code?: unknown }).code;
    if (typeof code === 'string') return code;
    inner = inner instanceof AggregateError ? inner.errors[0] : inner.cause;
  }
  return null;
}
