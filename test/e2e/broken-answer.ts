// Streams that fail: an error event, then the connection is cut. One that ends as if it were whole is the fault.

const ERROR_EVENT = /(?:^|\n\n)data: \{"error":\{[^\n]*\}\}\n\n$/;

/** What came of an answer that has to break off. */
export async function untilBroken(body: AsyncIterable<unknown>): Promise<string> {
  let text = '';
  try {
    for await (const piece of body) text += String(piece);
  } catch {
    // What is asked for: the connection was cut in the middle of the answer.
    return text;
  }
  throw new Error(`ended as if it were whole: ${text}`);
}

/** What came of an answer: all of it or, as client libraries read, up to an error event. */
export async function untilError(body: AsyncIterable<unknown>): Promise<string> {
  let text = '';
  for await (const piece of body) {
    text += String(piece);
    // Leaving closes the connection.
    if (ERROR_EVENT.test(text.slice(-4_096))) break;
  }
  return text;
}
