// Bytes that come in pieces of any size and are wanted as one. Small pieces are copied into blocks: a body sent one byte
// a chunk would otherwise cost a hundred times its size in buffers that each hold one of them.

/** A smaller piece is copied, bytes. */
const COPIED_BELOW = 4 * 1024;
const BLOCK_BYTES = 16 * 1024;

export class BytePieces {
  private readonly whole: Buffer[] = [];
  private block: Buffer | null = null;
  private used = 0;
  private total = 0;
  private expected: number | null;

  /** `expected`: how many bytes will come, as far as somebody says; a block is no larger than that. */
  constructor(expected: number | null = null) {
    this.expected = expected;
  }

  expect(bytes: number | null): void {
    this.expected = bytes;
  }

  get length(): number {
    return this.total;
  }

  /** Memory that is held: at most a third more than the length, and a block. */
  get heldBytes(): number {
    const blocks = new Set(
      [...this.whole, ...(this.block === null ? [] : [this.block])].map(({ buffer }) => buffer),
    );
    return [...blocks].reduce((sum, { byteLength }) => sum + byteLength, 0);
  }

  add(piece: Buffer): void {
    if (piece.length >= COPIED_BELOW) {
      this.closeBlock();
      this.whole.push(piece);
      this.total += piece.length;
      return;
    }
    if (this.block !== null && this.used + piece.length > this.block.length) {
      this.closeBlock();
      this.block = null;
    }
    this.block ??= Buffer.allocUnsafeSlow(this.blockBytes(piece.length));
    this.used += piece.copy(this.block, this.used);
    this.total += piece.length;
  }

  /** All of it in one piece; nothing stays. */
  take(): Buffer {
    const [first, ...more] = this.drain();
    if (first === undefined) return Buffer.alloc(0);
    return more.length === 0 ? first : Buffer.concat([first, ...more]);
  }

  /** All of it, in order; nothing stays. */
  drain(): Buffer[] {
    this.closeBlock();
    this.block = null;
    this.total = 0;
    return this.whole.splice(0);
  }

  clear(): void {
    this.whole.length = 0;
    this.block = null;
    this.used = 0;
    this.total = 0;
  }

  /** Room for all that is expected still, and for the piece at hand whatever was said. */
  private blockBytes(atHand: number): number {
    const left = (this.expected ?? BLOCK_BYTES) - this.total;
    return left < atHand ? BLOCK_BYTES : Math.min(left, BLOCK_BYTES);
  }

  /** What is used of the block stands for itself now; what is left is used on. */
  private closeBlock(): void {
    if (this.block === null || this.used === 0) return;
    this.whole.push(this.block.subarray(0, this.used));
    this.block = this.used === this.block.length ? null : this.block.subarray(this.used);
    this.used = 0;
  }
}
