import { describe, expect, it } from 'vitest';
import { LogSink, type SinkFile } from './log-sink.ts';

type Done = Parameters<SinkFile['write']>[1];

/** A file whose reader the test is. */
class FakeFile implements SinkFile {
  readonly read: Uint8Array[] = [];
  pending: { bytes: Uint8Array; done: Done } | null = null;
  /** What `writeSync` does, call by call; then it takes all. */
  script: (number | string)[] = [];

  write(bytes: Uint8Array, done: Done): void {
    if (this.pending !== null) throw new Error('two writes at once');
    this.pending = { bytes, done };
  }

  writeSync(bytes: Uint8Array): number {
    const step = this.script.shift() ?? bytes.length;
    if (typeof step === 'string') throw Object.assign(new Error(step), { code: step });
    this.read.push(bytes.subarray(0, step));
    return step;
  }

  /** Takes what is being written, or so many bytes of it. */
  take(limit = Number.POSITIVE_INFINITY): void {
    const { bytes, done } = this.#next();
    const taken = Math.min(limit, bytes.length);
    this.read.push(bytes.subarray(0, taken));
    done(null, taken);
  }

  fail(code: string): void {
    this.#next().done(Object.assign(new Error(code), { code }), 0);
  }

  get text(): string {
    return Buffer.concat(this.read).toString();
  }

  #next(): { bytes: Uint8Array; done: Done } {
    const { pending } = this;
    if (pending === null) throw new Error('nothing is being written');
    this.pending = null;
    return pending;
  }
}

function rig() {
  const file = new FakeFile();
  const time = { nowMs: 0 };
  return { file, time, sink: new LogSink(file, () => time.nowMs) };
}

describe('a log sink', () => {
  it('writes lines in order, together while a write is under way, and what a short write left', () => {
    const { file, sink } = rig();
    for (const line of ['a\n', 'b\n', 'ü\n']) sink.write(line);
    file.take();
    file.take(3);
    sink.write('d\n');
    file.take(1);
    file.take();
    expect(file.pending?.bytes).toBeDefined();
    file.take();
    expect(file.text).toBe('a\nb\nü\nd\n');
    expect(file.pending).toBeNull();
  });

  it('keeps a bounded number of bytes for a slow reader, and says how many lines it dropped', () => {
    const { file, sink } = rig();
    const line = `${'x'.repeat(1_023)}\n`;
    for (let k = 0; k < 5_000; k += 1) sink.write(line);
    while (file.pending !== null) file.take();
    expect(file.text.length).toBeLessThan(4.2 * 1024 * 1024);
    // One was under way, 4,096 waited.
    expect(file.text).toContain('"lines":903,');
    sink.write('after\n');
    file.take();
    expect(file.text.endsWith('after\n')).toBe(true);
  });

  it('drops everything in silence once its reader is gone', () => {
    const { file, sink } = rig();
    sink.write('a\n');
    file.fail('EPIPE');
    for (let k = 0; k < 10; k += 1) sink.write('b\n');
    expect(file.pending).toBeNull();
    sink.flushSync();
    expect(file.read).toEqual([]);
  });

  it('tries again where the reader takes nothing for now', async () => {
    const { file, sink } = rig();
    sink.write('a\n');
    file.fail('EAGAIN');
    await expect.poll(() => file.pending !== null).toBe(true);
    file.take();
    expect(file.text).toBe('a\n');
  });

  it.each([
    ['all of it', [], 'b\nc\n'],
    ['all of it, after a while', ['EAGAIN', 1, 'EAGAIN'], 'b\nc\n'],
    ['nothing more, where nobody reads', ['EPIPE'], ''],
    [
      'what is taken, where the reader stands still',
      Array.from({ length: 99 }, () => 'EAGAIN'),
      '',
    ],
  ] as [string, (number | string)[], string][])(
    'leaves nothing behind at exit: %s',
    (_name, script, expected) => {
      const { file, sink } = rig();
      for (const line of ['a\n', 'b\n', 'c\n']) sink.write(line);
      file.script = script;
      sink.flushSync();
      expect(file.text).toBe(expected);
    },
  );

  it('does not wait at exit for a reader that has not taken the write before', () => {
    const { file, sink, time } = rig();
    for (const line of ['a\n', 'b\n']) sink.write(line);
    time.nowMs = 1_500;
    sink.flushSync();
    expect(file.read).toEqual([]);
  });
});
