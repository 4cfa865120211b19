import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseExposition } from './exposition.ts';

const all = (name: string): string => name;

function values(text: string): number[] {
  return parseExposition(text, all).samples.map((sample) => sample.value);
}

describe('exposition', () => {
  it('reads values as they are written', () => {
    expect(values('a 1\na 1.5e+09\na 2e+010\na -0.25\na .5\na 3.\n')).toEqual([
      1, 1.5e9, 2e10, -0.25, 0.5, 3,
    ]);
    expect(values('a +Inf\na -Inf\na NaN\na Inf\n')).toEqual([
      Infinity,
      -Infinity,
      Number.NaN,
      Infinity,
    ]);
  });

  it('reads labels with any character in them', () => {
    const text = String.raw`m{a="x\"y",b="b\\s",c="l\nf",d="}{ ,=",e="",f="ü 日"} 1`;
    expect(parseExposition(text, all).samples[0]?.labels).toEqual({
      a: 'x"y',
      b: 'b\\s',
      c: 'l\nf',
      d: '}{ ,=',
      e: '',
      f: 'ü 日',
    });
  });

  it('takes spaces, trailing commas, timestamps, exemplars and carriage returns', () => {
    const text = 'm{ a = "1" , b="2", } 3 1700000000000\r\nm 4 -5\n  m\t5 # {trace="x"} 1\nm{}6\n';
    const parsed = parseExposition(text, all);
    expect(parsed.samples.map((sample) => sample.value)).toEqual([3, 4, 5, 6]);
    expect(parsed.samples[0]?.labels).toEqual({ a: '1', b: '2' });
    expect(parsed.malformedLines).toBe(0);
  });

  it('needs neither HELP nor TYPE, and no end of line at the end', () => {
    expect(values('# EOF is a comment\nbare 7')).toEqual([7]);
  });

  it('counts what is no sample and reads on', () => {
    const text =
      'good 1\n{no="name"} 2\nbad{a="x} 3\nbad{a=x} 4\nbad five\nbad\n<html>\nbad{ 1\ngood 6\n';
    const parsed = parseExposition(text, all);
    expect(parsed.samples.map((sample) => sample.value)).toEqual([1, 6]);
    expect(parsed.malformedLines).toBe(7);
  });

  it('leaves out and renames by name before it reads labels', () => {
    const wanted = (name: string): string | null => (name === 'old' ? 'new' : null);
    const parsed = parseExposition('other{broken 1\nold{a="1"} 2\n', wanted);
    expect(parsed.samples).toEqual([{ name: 'new', labels: { a: '1' }, value: 2 }]);
  });

  it('stops at its limit and says so', () => {
    const parsed = parseExposition('a 1\n'.repeat(10), all, 4);
    expect(parsed.samples).toHaveLength(4);
    expect(parsed.cut).toBe(true);
  });

  it('never throws and never takes long, whatever it is given', () => {
    const piece = fc.constantFrom(
      'a',
      '{',
      '}',
      '"',
      '\\',
      ',',
      '=',
      ' ',
      '\n',
      '1',
      '#',
      '\r',
      'é',
    );
    fc.assert(
      fc.property(fc.string({ unit: piece, maxLength: 300 }), (text) => {
        parseExposition(text, all);
      }),
      { numRuns: 500 },
    );
    const hostile = `a{${'b="\\'.repeat(20_000)}`;
    expect(parseExposition(hostile, all).malformedLines).toBe(1);
  });

  it('reads back what is written with escapes', () => {
    const label = fc
      .string({ unit: 'grapheme', maxLength: 20 })
      .filter((text) => !/[\r\u2028\u2029]/.test(text));
    fc.assert(
      fc.property(label, fc.double({ noNaN: true }), (text, value) => {
        const escaped = text
          .replaceAll('\\', '\\\\')
          .replaceAll('"', '\\"')
          .replaceAll('\n', '\\n');
        const written = Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
        const [sample] = parseExposition(`m{l="${escaped}"} ${written}\n`, all).samples;
        expect(sample?.labels['l']).toBe(text);
        expect(sample?.value === value).toBe(true);
      }),
    );
  });
});
