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
  const pieces: Uint8Array[] = [];
  let from = 0;
  for (const cut of cuts) {
    pieces.push(bytes.subarray(from, cut.start));
    if (cut.text !== '') pieces.push(Buffer.from(cut.text));
    from = cut.end;
  }
  pieces.push(bytes.subarray(from));
  return Buffer.concat(pieces);
}

function cutsOf(scan: Scanned, edits: Edits): Cut[] {
  const cuts: Cut[] = [];
  const seen = new Set<string>();
  const kept = scan.members.map((member) => edits.get(member.name) !== null);
  scan.members.forEach((member, index) => {
    const edit = edits.get(member.name);
    if (edit === undefined) return;
    seen.add(member.name);
    cuts.push(edit === null ? removal(scan, index, kept) : replacement(member, edit));
  });
  const added = [...edits].filter(([name, edit]) => edit !== null && !seen.has(name));
  if (added.length > 0) {
    const text = added.map(([name, edit]) => `${JSON.stringify(name)}:${edit}`).join(',');
    const comma = kept.includes(true) ? ',' : '';
    cuts.push({ start: scan.close, end: scan.close, text: comma + text });
  }
  return cuts;
}

function replacement(member: MemberSpan, text: string): Cut {
  return { start: member.valueStart, end: member.valueEnd, text };
}

/**
 * A removed member takes one comma with it: the one after it while a kept member stands before it is
 * wrong when it is the last, so members after the last kept one take the comma before them.
 */
function removal(scan: Scanned, index: number, kept: readonly boolean[]): Cut {
  const { members } = scan;
  const member = members[index] as MemberSpan;
  const keptAfter = kept.indexOf(true, index + 1) >= 0;
  const next = members[index + 1];
  if (keptAfter && next !== undefined)
    return { start: member.keyStart, end: next.keyStart, text: '' };
  const previous = members[index - 1];
  const start = previous === undefined ? member.keyStart : previous.valueEnd;
  return { start, end: member.valueEnd, text: '' };
}
