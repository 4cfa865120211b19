// What a client of a soak reads of an answer, and whether that is the whole of it. Nothing is taken for an end but what the
// protocol calls one: `[DONE]` after a finish reason, or whole JSON with one.

export interface Told {
  text: string;
  /** As the protocol ends it, with the finish reason that is due: `length`, since each request names one. */
  ended: boolean;
  error: string | null;
}

/** Null where it is whole and right. */
export function differenceOf(told: Told, expected: string): string | null {
  if (!told.ended) return `ended without an end after ${told.text.length} characters`;
  if (told.text === expected) return null;
  return `"${told.text.slice(0, 80)}" instead of "${expected.slice(0, 80)}"`;
}

export function readJson(text: string, told: Told): void {
  const { choices } = JSON.parse(text) as {
    choices: { message: { content: string }; finish_reason: string }[];
  };
  told.text = choices[0]?.message.content ?? '';
  told.ended = choices[0]?.finish_reason === 'length';
}

export async function readEvents(body: AsyncIterable<unknown>, told: Told): Promise<void> {
  let rest = '';
  let finish: string | null = null;
  for await (const piece of body) {
    const lines = (rest + String(piece)).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') {
        told.ended = finish === 'length';
        continue;
      }
      const event = JSON.parse(data) as StreamEvent;
      if (event.error !== undefined) told.error = `error event ${event.error.code}`;
      told.text += event.choices?.[0]?.delta?.content ?? '';
      finish = event.choices?.[0]?.finish_reason ?? finish;
    }
  }
}

interface StreamEvent {
  readonly error?: { readonly code?: string };
  readonly choices?: readonly {
    readonly delta?: { readonly content?: string };
    readonly finish_reason?: string | null;
  }[];
}
