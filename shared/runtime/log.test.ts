import { expect, test } from 'vitest';
import { readableLines } from './log.ts';

test('a name that a client chose is one word of a readable line, and no command to a terminal', () => {
  const format = readableLines(false);
  const model = 'x\u001b[2J\u009b2J\u007f\nINFO: forged';
  const line = format(`${JSON.stringify({ level: 30, time: 0, model, msg: 'request' })}\n`);
  expect(line).toContain(String.raw`{"model":"x\u001b[2J\u009b2J\u007f\nINFO: forged"}`);
  expect(line.trimEnd()).toMatch(/^[\x20-\x7e]+$/);
});
