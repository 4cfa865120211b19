// Input that a person can correct. Printed as it stands, without a stack; the process ends with 1.

export class UsageError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = 'UsageError';
  }
}
