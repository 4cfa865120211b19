// A run with one method of a policy replaced: the mechanism switched off, to see that a proof needs it.

/** `make` gets the method as it is and returns what stands in for it while `run` runs. */
export function without<T, Name extends keyof T>(
  prototype: T,
  method: { readonly name: Name; readonly make: (original: T[Name]) => unknown },
  run: () => void,
): void {
  const original = prototype[method.name];
  prototype[method.name] = method.make(original) as T[Name];
  try {
    run();
  } finally {
    prototype[method.name] = original;
  }
}
