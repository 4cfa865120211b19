// Text to token ids and back, without a vocabulary: a token is four bytes of UTF-8.
//
// A piece of text is cut in fours from its start; its last token may be shorter. So text that is extended
// keeps all full tokens, which is what prefix reuse rests on. An id is its bytes, little endian, short ones
// filled up with 0xFE; ids from 0xFF000000 on are special. Neither byte occurs in UTF-8: detokenising is exact.

const PIECE_BYTES = 4;
const FILL = 0xfe;
const SPECIAL = 0xff000000;

const encoder = new TextEncoder();

export const BEGIN_TOKEN = SPECIAL;
/** Ends a message; a model that stops by itself generates it. */
export const END_TOKEN = SPECIAL + 1;
const TOOLS_TOKEN = SPECIAL + 2;
const PART_TOKEN = SPECIAL + 3;
const ROLE_TOKENS: Readonly<Record<string, number>> = {
  system: SPECIAL + 16,
  user: SPECIAL + 17,
  assistant: SPECIAL + 18,
  tool: SPECIAL + 19,
  developer: SPECIAL + 20,
};
const OTHER_ROLE = SPECIAL + 21;

/** Tokens of an image, sound or other part that is no text. */
export const PART_TOKENS = 256;

/** Token ids of plain text. */
export function tokenize(text: string): number[] {
  const bytes = encoder.encode(text);
  const ids: number[] = [];
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
    let id = 0;
    for (let offset = PIECE_BYTES - 1; offset >= 0; offset -= 1) {
      id = id * 256 + (bytes[at + offset] ?? FILL);
    }
    ids.push(id);
  }
  return ids;
}

const decoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** The text of token ids; special ones have none. */
export function detokenize(ids: Iterable<number>): string {
  const bytes: number[] = [];
  for (const id of ids) for (const byte of tokenBytes(id)) bytes.push(byte);
  return decoder.decode(Uint8Array.from(bytes));
}

/** The same of one token; told with every token of a stream, so plain letters go a short way. */
export function tokenText(id: number): string {
  if (id >= SPECIAL) return '';
  let text = '';
  for (let shift = 0; shift < 8 * PIECE_BYTES; shift += 8) {
    const byte = (id >>> shift) & 0xff;
    if (byte === FILL) continue;
    if (byte >= 0x80) return detokenize([id]);
    text += String.fromCharCode(byte);
  }
  return text;
}

/** The UTF-8 bytes of one token; none for a special one. */
export function tokenBytes(id: number): number[] {
  const bytes: number[] = [];
  if (id >= SPECIAL) return bytes;
  for (let offset = 0; offset < PIECE_BYTES; offset += 1) {
    const byte = Math.floor(id / 256 ** offset) % 256;
    if (byte !== FILL) bytes.push(byte);
  }
  return bytes;
}

/** A chat message as the template sees it: text, and keys of parts that are none. */
export interface TemplateMessage {
  readonly role: string;
  readonly pieces: readonly TemplatePiece[];
}

export type TemplatePiece =
  | { readonly kind: 'text'; readonly text: string }
  /** Anything else, by its JSON: equal parts are equal tokens. */
  | { readonly kind: 'part'; readonly json: string };

/**
 * `<begin> [<tools> text <end>] (<role> content <end>)* <assistant>`: the prompt of the next turn extends this
 * one and its answer token by token.
 */
export function renderChat(
  messages: readonly TemplateMessage[],
  toolsJson: string | null,
): number[] {
  const ids: number[] = [BEGIN_TOKEN];
  if (toolsJson !== null) {
    ids.push(TOOLS_TOKEN);
    for (const id of tokenize(toolsJson)) ids.push(id);
    ids.push(END_TOKEN);
  }
  for (const message of messages) {
    ids.push(ROLE_TOKENS[message.role] ?? OTHER_ROLE);
    for (const piece of message.pieces) {
      if (piece.kind === 'text') for (const id of tokenize(piece.text)) ids.push(id);
      else pushPart(ids, piece.json);
    }
    ids.push(END_TOKEN);
  }
  ids.push(ROLE_TOKENS['assistant'] ?? OTHER_ROLE);
  return ids;
}

function pushPart(ids: number[], json: string): void {
  let hash = 0;
  for (let at = 0; at < json.length; at += 1)
    hash = (Math.imul(hash, 31) + json.charCodeAt(at)) >>> 0;
  ids.push(PART_TOKEN);
  for (let at = 1; at < PART_TOKENS; at += 1) ids.push(SPECIAL + 0x10000 + ((hash + at) & 0xffff));
}
