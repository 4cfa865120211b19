// Exchanges the values of a closed list of top-level members inside a request's bytes. Every other byte
// stays where the client put it: no re-serialising, so numbers, escapes, order and unknown fields survive.

import type { MemberSpan, SpanScan } from './json-spans.ts';

export type Scanned = Extract<SpanScan, { ok: true }>;

/**
 * Member name → JSON text of its new value; null removes the member. A map, because a client may name a
 * member `valueOf` and an object would have one.
 */
export type Edits = ReadonlyMap<string, string | null>;

interface Cut {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * The bytes with the edits done. A member that is not there is added before the closing brace; removing
 * one that is not there changes nothing. Returns `bytes` itself when nothing has to change.
 */
export function spliceMembers(bytes: Buffer, scan: Scanned, edits: Edits): Buffer {
  const cuts = cutsOf(scan, edits);
  if (cuts.length === 0) return bytes;
  let length = bytes.length;
  for (const { start, end, text } of cuts) length += Buffer.byteLength(text) - (end - start);
  const spliced = Buffer.allocUnsafe(length);
  let at = 0;
  let from = 0;
  for (const { start, end, text } of cuts) {
    at += bytes.copy(spliced, at, from, start);
    at += spliced.write(text, at);
    from = end;
  }
  bytes.copy(spliced, at, from);
  return spliced;
}

/** In plain loops: most requests have nothing to exchange, and that is to be seen at little cost. */
function cutsOf(scan: Scanned, edits: Edits): Cut[] {
  const cuts: Cut[] = [];
  const { members } = scan;
  let kept = 0;
  for (let index = 0; index < members.length; index += 1) {
    const member = members[index] as MemberSpan;
    const edit = edits.get(member.name);
    if (edit !== null) kept += 1;
    if (edit === undefined) continue;
    cuts.push(edit === null ? removal(scan, index, edits) : replacement(member, edit));
  }
  let added = '';
  for (const [name, edit] of edits) {
    if (edit === null || members.some((member) => member.name === name)) continue;
    added += `${added === '' && kept === 0 ? '' : ','}${JSON.stringify(name)}:${edit}`;
  }
  if (added !== '') cuts.push({ start: scan.close, end: scan.close, text: added });
  return cuts;
}

function replacement(member: MemberSpan, text: string): Cut {
  return { start: member.valueStart, end: member.valueEnd, text };
}

/**
 * A removed member takes one comma with it: the one after it while a kept member stands before it is
 * wrong when it is the last, so members after the last kept one take the comma before them.
 */
function removal({ members }: Scanned, index: number, edits: Edits): Cut {
  const member = members[index] as MemberSpan;
  const next = members[index + 1];
  const keptAfter = members.some(({ name }, at) => at > index && edits.get(name) !== null);
  if (keptAfter && next !== undefined)
    return { start: member.keyStart, end: next.keyStart, text: '' };
  const previous = members[index - 1];
  const start = previous === undefined ? member.keyStart : previous.valueEnd;
  return { start, end: member.valueEnd, text: '' };
}
