// Frames that are hostile as msgpack, whoever reads them: each is to be refused as malformed, at once.

import { Packr } from 'msgpackr';

const kind = (name: string): Buffer =>
  Buffer.concat([Buffer.from('a46b696e64', 'hex'), text(name)]);
const hex = (digits: string): Buffer => Buffer.from(digits, 'hex');

function text(value: string): Buffer {
  return Buffer.concat([Buffer.from([0xa0 | value.length]), Buffer.from(value)]);
}

/** A map of `kind` and one more member. */
function withMember(name: string, member: Buffer): Buffer {
  return Buffer.concat([hex('82'), kind(name), text('x'), member]);
}

/** `name`: a kind that the reader knows. */
export function msgpackBombs(name: string): [string, Uint8Array][] {
  const deep = (opening: string): Buffer =>
    withMember(name, Buffer.concat([hex(opening.repeat(100_000)), hex('c0')]));
  return [
    ['garbage', Buffer.from('GET / HTTP/1.1')],
    ['nothing', new Uint8Array(0)],
    ['a number', hex('07')],
    ['arrays 100,000 deep', deep('91')],
    ['maps 100,000 deep', deep('81a161')],
    ['an array of 4 G elements', withMember(name, hex('ddffffffff'))],
    ['a map of 4 G members', withMember(name, hex('dfffffffff'))],
    ['a text of 4 GiB', withMember(name, hex('dbffffffff'))],
    ['bytes of 4 GiB', withMember(name, hex('c6ffffffff'))],
    ['an extension', withMember(name, hex('c7050100000000'))],
    ['an extension of 4 GiB', withMember(name, hex('c9ffffffff01'))],
    ['a record of msgpackr', new Packr({ useRecords: true }).pack({ kind: name })],
    ['the mark that nobody uses', withMember(name, hex('c1'))],
    ['a number as a key', Buffer.concat([hex('82'), kind(name), hex('0102')])],
    ['two messages in one', Buffer.concat([hex('81'), kind(name), hex('c0')])],
    ['a kind that is a map', hex('81a46b696e6480')],
  ];
}
