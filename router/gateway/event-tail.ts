// The beginning of an event whose end has not come. It grows in place, so that an event in many small pieces costs its own
// length and not the square of it.

const LEAST_BYTES = 1_024;

export class EventTail {
  private room: Buffer | null = null;
  private used = 0;

  get length(): number {
    return this.used;
  }

  /** Memory that it takes: up to twice its length and more. */
  get heldBytes(): number {
    return this.room?.length ?? 0;
  }

  /** The tail and what comes behind it. What was returned before must not be used any more, unless `keep` has cut it. */
  with(piece: Buffer): Buffer {
    if (this.room === null) return piece;
    const needed = this.used + piece.length;
    if (needed > this.room.length) this.grow(needed);
    this.used += piece.copy(this.room, this.used);
    return this.room.subarray(0, this.used);
  }

  /** Of the last `bytes` all from `start` on is the tail now. What stands before it stays as it is. */
  keep(bytes: Buffer, start: number): void {
    if (start === 0 && this.room !== null) return;
    const rest = bytes.subarray(start);
    this.clear();
    if (rest.length === 0) return;
    // Bytes before it may be on their way to the client: a room of its own.
    this.grow(rest.length);
    this.used = rest.copy(this.room as unknown as Buffer);
  }

  clear(): void {
    this.room = null;
    this.used = 0;
  }

  private grow(needed: number): void {
    const room = Buffer.allocUnsafeSlow(Math.max(LEAST_BYTES, 2 * needed));
    this.room?.copy(room, 0, 0, this.used);
    this.room = room;
  }
}
