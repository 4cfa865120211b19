// Hash words on the wire: little endian, 4 bytes a word, copied as a block and never element by element.
//
// Decoded words own their memory, so that a kept chain does not keep its whole frame alive.

const LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** The words' bytes in wire order; shares memory with `words` where the machine's order is the wire's. */
export function wordsToBytes(words: Uint32Array): Uint8Array {
  const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
  return LITTLE_ENDIAN ? bytes : swapped(bytes);
}

/** A copy of `bytes` as words. Its length is a multiple of 4. */
export function bytesToWords(bytes: Uint8Array): Uint32Array {
  const words = new Uint32Array(bytes.byteLength / 4);
  new Uint8Array(words.buffer).set(LITTLE_ENDIAN ? bytes : swapped(bytes));
  return words;
}

function swapped(bytes: Uint8Array): Uint8Array {
  const copy = Uint8Array.from(bytes);
  for (let at = 0; at < copy.length; at += 4) copy.subarray(at, at + 4).reverse();
  return copy;
}
