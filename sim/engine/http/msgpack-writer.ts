// Writes msgpack as msgspec does: integers and lengths in the fewest bytes, floats always in eight.
//
// By hand, because block hashes are 64-bit integers kept as two 32-bit words, and whether a number is a float is the
// field's business and not the value's.

export class MsgpackWriter {
  #bytes = Buffer.allocUnsafe(1_024);
  #length = 0;

  /** A copy of all that was written; the writer is empty again. */
  take(): Buffer {
    const taken = Buffer.from(this.#bytes.subarray(0, this.#length));
    this.#length = 0;
    return taken;
  }

  nil(): void {
    this.#byte(0xc0);
  }

  array(length: number): void {
    this.#head({ length, fixed: 0x90, fixedMax: 15, wide: 0xdc });
  }

  map(entries: number): void {
    this.#head({ length: entries, fixed: 0x80, fixedMax: 15, wide: 0xde });
  }

  text(text: string): void {
    const bytes = Buffer.byteLength(text);
    if (bytes < 32 || bytes > 255) {
      this.#head({ length: bytes, fixed: 0xa0, fixedMax: 31, wide: 0xda });
    } else {
      this.#byte(0xd9);
      this.#byte(bytes);
    }
    this.#room(bytes);
    this.#length += this.#bytes.write(text, this.#length, 'utf8');
  }

  textOrNil(text: string | null): void {
    if (text === null) this.nil();
    else this.text(text);
  }

  float(value: number): void {
    this.#room(9);
    this.#bytes[this.#length] = 0xcb;
    this.#bytes.writeDoubleBE(value, this.#length + 1);
    this.#length += 9;
  }

  /** A whole number from 0 to 2³² − 1. */
  unsigned(value: number): void {
    if (value < 128) return this.#byte(value);
    if (value < 256) {
      this.#byte(0xcc);
      return this.#byte(value);
    }
    this.#room(5);
    const wide = value >= 65_536;
    this.#bytes[this.#length] = wide ? 0xce : 0xcd;
    this.#length += 1;
    this.#length = wide
      ? this.#bytes.writeUInt32BE(value, this.#length)
      : this.#bytes.writeUInt16BE(value, this.#length);
  }

  /** An unsigned integer of 64 bits as its two halves. */
  unsigned64(high: number, low: number): void {
    if (high === 0) this.unsigned(low);
    else this.#wide(0xcf, high, low);
  }

  /** The same bits as a signed integer. */
  signed64(high: number, low: number): void {
    if (high < 0x80000000) return this.unsigned64(high, low);
    if (high === 0xffffffff && low >= 0x80000000) {
      const value = low - 0x100000000;
      if (value >= -32) return this.#byte(value & 0xff);
      this.#room(5);
      this.#bytes[this.#length] = 0xd2;
      this.#length = this.#bytes.writeInt32BE(value, this.#length + 1);
    } else this.#wide(0xd3, high, low);
  }

  #wide(tag: number, high: number, low: number): void {
    this.#room(9);
    this.#bytes[this.#length] = tag;
    this.#bytes.writeUInt32BE(high, this.#length + 1);
    this.#bytes.writeUInt32BE(low, this.#length + 5);
    this.#length += 9;
  }

  /** `wide` is the tag of the 16-bit form, the 32-bit one follows it. */
  #head(form: { length: number; fixed: number; fixedMax: number; wide: number }): void {
    const { length } = form;
    if (length <= form.fixedMax) return this.#byte(form.fixed | length);
    this.#room(5);
    const wide = length >= 65_536;
    this.#bytes[this.#length] = wide ? form.wide + 1 : form.wide;
    this.#length += 1;
    this.#length = wide
      ? this.#bytes.writeUInt32BE(length, this.#length)
      : this.#bytes.writeUInt16BE(length, this.#length);
  }

  #byte(value: number): void {
    this.#room(1);
    this.#bytes[this.#length] = value;
    this.#length += 1;
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(2 * this.#bytes.length, this.#length + bytes));
    this.#bytes.copy(grown, 0, 0, this.#length);
    this.#bytes = grown;
  }
}
