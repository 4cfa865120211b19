import { appendFile, mkdtemp, rename, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { systemClock } from '../shared/runtime/clock.ts';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import { LogTail, LogWitness } from './evidence-log.ts';

let folder: string;
let file: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'spillway-log-'));
  file = join(folder, 'engine.log');
});

afterEach(async () => {
  await rm(folder, { recursive: true });
});

async function lines(tail: LogTail): Promise<readonly string[] | null> {
  return (await tail.read())?.lines ?? null;
}

describe('a log that is followed', () => {
  it('gives whole lines, each once, however they were written', async () => {
    const tail = new LogTail(file);
    await writeFile(file, 'one\ntw');
    expect(await lines(tail)).toEqual(['one']);
    await appendFile(file, 'o\r\nthree\n');
    expect(await lines(tail)).toEqual(['two', 'three']);
    expect(await lines(tail)).toEqual([]);
  });

  it('takes a bar that redraws itself as lines, without colours', async () => {
    await writeFile(file, '\u001b[32m10%\u001b[0m\r20%\r30%');
    expect(await lines(new LogTail(file))).toEqual(['10%', '20%']);
  });

  it('is not there, then is, then is gone', async () => {
    const tail = new LogTail(file);
    expect(await lines(tail)).toBeNull();
    await writeFile(file, 'here\n');
    expect(await lines(tail)).toEqual(['here']);
    await rm(file);
    expect(await lines(tail)).toBeNull();
  });

  it('goes on in the new file when it was rotated by renaming', async () => {
    const tail = new LogTail(file);
    await writeFile(file, 'old and long enough\n');
    await lines(tail);
    await rename(file, `${file}.1`);
    await writeFile(file, 'new and longer than the old one was\n');
    expect(await lines(tail)).toEqual(['new and longer than the old one was']);
  });

  it('begins again when it was truncated in place', async () => {
    const tail = new LogTail(file);
    await writeFile(file, 'a first line\nhalf');
    await lines(tail);
    await truncate(file, 0);
    await appendFile(file, 'second\n');
    expect(await lines(tail)).toEqual(['second']);
  });

  it('that is huge is read from near its end only, and never as half a line', async () => {
    const long = `${'x'.repeat(999)}\n`.repeat(1_000);
    await writeFile(file, `first\n${long}last\n`);
    const read = (await lines(new LogTail(file))) ?? [];
    expect(read.length).toBeLessThan(300);
    expect(read.at(-1)).toBe('last');
    expect(read).not.toContain('first');
  });

  it('without line ends is held within a bound', async () => {
    const tail = new LogTail(file);
    await writeFile(file, 'y'.repeat(200_000));
    expect(await lines(tail)).toEqual([]);
    await appendFile(file, '\n');
    expect((await lines(tail))?.[0]?.length).toBeLessThan(10_000);
  });
});

describe('what a log tells', () => {
  it('is how far the start has come, and for how long it has told nothing', async () => {
    const time = new ManualTime();
    const clock = { nowMs: () => time.nowMs(), wallMs: () => systemClock.wallMs() };
    const witness = new LogWitness(file, clock);
    expect(witness.sight()).toBeNull();
    await writeFile(file, 'Loading safetensors checkpoint shards:  50% Completed | 2/4\n');
    await vi.waitFor(() =>
      expect(witness.sight()?.progress).toEqual({ stage: 'weights', ratio: 0.5 }),
    );
    const before = witness.sight()?.ageMs ?? Infinity;
    time.advance(5_000);
    expect(witness.sight()?.ageMs).toBeCloseTo(before + 5_000);
    await appendFile(file, 'nothing of a start\n');
    time.advance(1_000);
    expect(witness.sight()?.ageMs).toBeCloseTo(before + 6_000);
  });
});
