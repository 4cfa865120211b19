import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createLog, plainLog, readableLines, type PlainMembers } from './log.ts';

/** The lines of a log, read. */
function logged() {
  const lines: Record<string, unknown>[] = [];
  const destination = {
    write: (line: string) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  };
  const log = createLog({ level: 'info', readable: false, destination }).child({ region: 'a' });
  return { log, lines };
}

test('a plain line is the one that the log itself would write, without what is null or false', () => {
  const value = fc.oneof(fc.string({ unit: 'binary' }), fc.integer(), fc.constantFrom(null, true));
  const names = fc.constantFrom('id', 'model', 'queueMs', 'lateError', 'secretOf');
  fc.assert(
    fc.property(fc.dictionary(names, value), (members) => {
      const { log, lines } = logged();
      plainLog(log).warn(members, 'request');
      const said = Object.entries(members).filter(([, each]) => each !== null);
      log.warn(Object.fromEntries(said), 'request');
      const [plain, own] = lines;
      expect({ ...plain, time: 0 }).toEqual({ ...own, time: 0 });
    }),
  );
});

test('numbers of a plain line are tenths, and what is no number is null', () => {
  const { log, lines } = logged();
  const members: PlainMembers = { a: 1.25, b: Number.NaN, c: 3, d: false };
  plainLog(log).info(members, 'request');
  expect(lines[0]).toMatchObject({ level: 30, region: 'a', a: 1.3, b: null, c: 3, msg: 'request' });
  expect(lines[0]).not.toHaveProperty('d');
});

test('a name that a client chose is one word of a readable line, and no command to a terminal', () => {
  const format = readableLines(false);
  const model = 'x\u001b[2J\u009b2J\u007f\nINFO: forged';
  const line = format(`${JSON.stringify({ level: 30, time: 0, model, msg: 'request' })}\n`);
  expect(line).toContain(String.raw`{"model":"x\u001b[2J\u009b2J\u007f\nINFO: forged"}`);
  expect(line.trimEnd()).toMatch(/^[\x20-\x7e]+$/);
});
