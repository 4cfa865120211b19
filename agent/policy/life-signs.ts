// Signs that an engine works, and when it last had reason to: what a silent or a failing one is told by.
//
//   moved     a token, a counter, a KV event: the engine did something
//   vouched   a user's first token: as good as a probe
//   failed    the engine failed a user's attempt

export class LifeSigns {
  private workMs = -Infinity;
  private movedAt = -Infinity;
  private vouchedAt = -Infinity;
  private failedAt = -Infinity;

  /** When users' work last began to wait for tokens. */
  get workSinceMs(): number {
    return this.workMs;
  }

  get movedMs(): number {
    return this.movedAt;
  }

  get vouchedMs(): number {
    return this.vouchedAt;
  }

  get failedMs(): number {
    return this.failedAt;
  }

  workBegan(atMs: number): void {
    this.workMs = atMs;
  }

  moved(atMs: number): void {
    this.movedAt = Math.max(this.movedAt, atMs);
  }

  vouched(atMs: number): void {
    this.vouchedAt = Math.max(this.vouchedAt, atMs);
  }

  failed(atMs: number): void {
    this.failedAt = Math.max(this.failedAt, atMs);
  }

  /** Since when nothing has moved although work waits. */
  get silentSinceMs(): number {
    return Math.max(this.workMs, this.movedAt);
  }
}
