// Answers that are held until they are whole, counted together. Where there is no room for another piece its answer passes on
// as it comes: that costs it the failover that holding was for, and nothing else.

export class AnswerRoom {
  private maxBytes: number;
  private held = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  get heldBytes(): number {
    return this.held;
  }

  configure(maxBytes: number): void {
    this.maxBytes = maxBytes;
  }

  /** True where they were taken: the caller gives them back, once. */
  take(bytes: number): boolean {
    if (this.held + bytes > this.maxBytes) return false;
    this.held += bytes;
    return true;
  }

  give(bytes: number): void {
    this.held -= bytes;
  }
}
