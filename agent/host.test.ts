import { describe, expect, it, vi } from 'vitest';
import type { ReplicaId } from '../shared/model/ids.ts';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import { GpuAssignment, visibleGpus, type ProcessFacts } from './host-gpus.ts';
import { HostWatch, type HostWatchOptions } from './host.ts';
import type { SmiOutput } from './nvidia-smi.ts';
import type { GpuFacts, GpuReading } from './policy/gpu-presence.ts';

const A = 'GPU-aaaaaaaa-0000-0000-0000-000000000000';
const B = 'GPU-bbbbbbbb-0000-0000-0000-000000000000';
const REPLICA = '127.0.0.1:8000' as ReplicaId;

function row(index: number, uuid: string): string {
  return `${index}, ${uuid}, NVIDIA H200, 143771, 1000, 50, 10, 300.5, 0x0000000000000000\n`;
}

function ran(stdout: string, exitCode: number | null = 0): SmiOutput {
  return { exitCode, stdout, stderr: '' };
}

interface Told {
  readonly reading: GpuReading;
  readonly uuids: readonly string[] | null;
}

function watch(more: Partial<HostWatchOptions> & Pick<HostWatchOptions, 'runSmi'>): {
  readonly host: HostWatch;
  readonly time: ManualTime;
  readonly told: Told[];
} {
  const time = new ManualTime();
  const told: Told[] = [];
  const host = new HostWatch({
    engines: [{ replica: REPLICA, pid: () => null }],
    timers: time,
    machine: () => ({ cpuRatio: 0.5, memoryTotalBytes: 10, memoryUsedBytes: 4 }),
    onGpus: (_replica, reading, uuids) => told.push({ reading, uuids }),
    ...more,
  });
  host.start();
  return { host, time, told };
}

async function times(told: readonly Told[], count: number): Promise<void> {
  await vi.waitFor(() => expect(told.length).toBe(count));
}

describe('the machine', () => {
  it('is looked at at once and then every 10 s, until it is told to stop', async () => {
    const { host, time, told } = watch({ runSmi: () => Promise.resolve(ran(row(0, A))) });
    await times(told, 1);
    expect(host.facts).toMatchObject({ machine: { cpuRatio: 0.5 }, gpus: [{ uuid: A }] });
    await vi.waitFor(() => {
      time.advance(10_000);
      expect(told.length).toBeGreaterThan(1);
    });
    host.stop();
    const seen = told.length;
    time.advance(60_000);
    await Promise.resolve();
    expect(told.length).toBe(seen);
  });

  it('that has no such tool, no driver or no figures stays unknown and ends nothing', async () => {
    const { host, told } = watch({
      runSmi: () => Promise.resolve(ran('', null)),
      machine: () => {
        throw new Error('no /proc here');
      },
    });
    await times(told, 1);
    expect(told[0]).toEqual({ reading: { kind: 'unknown' }, uuids: null });
    expect(host.facts).toEqual({
      machine: { cpuRatio: null, memoryTotalBytes: null, memoryUsedBytes: null },
      gpus: [],
    });
  });

  it('with an older driver is asked by the older name, and from then on only by it', async () => {
    const asked: string[] = [];
    const { time, told } = watch({
      runSmi: ([query = '']) => {
        asked.push(query.split(',').at(-1) ?? '');
        if (query.includes('clocks_event_reasons')) {
          return Promise.resolve(ran('Field "x" is not a valid field to query.\n', 2));
        }
        return Promise.resolve(ran(row(0, A)));
      },
    });
    await times(told, 1);
    expect(told[0]?.reading).toMatchObject({ kind: 'gpus', gpus: [{ throttled: false }] });
    await vi.waitFor(() => {
      time.advance(10_000);
      expect(told.length).toBeGreaterThan(1);
    });
    const older = 'clocks_throttle_reasons.active';
    expect(asked.slice(0, 3)).toEqual(['clocks_event_reasons.active', older, older]);
    expect(asked.slice(3).every((name) => name === older)).toBe(true);
  });

  it('without the tool is looked through for it once a minute', async () => {
    let asked = 0;
    const { time, told } = watch({
      runSmi: () => {
        asked += 1;
        return Promise.resolve({ ...ran('', null), missing: asked < 3 });
      },
    });
    const askedAfter = async (looks: number): Promise<number> => {
      while (told.length < looks) {
        const seen = told.length;
        time.advance(10_000);
        await times(told, seen + 1);
      }
      return asked;
    };
    await times(told, 1);
    expect([await askedAfter(6), await askedAfter(7), await askedAfter(12)]).toEqual([1, 2, 2]);
    // There it is, and at every look from then on.
    expect([await askedAfter(13), await askedAfter(15)]).toEqual([3, 5]);
  });
});

describe('a tool that fails', () => {
  it('leaves no figures of an earlier reading', async () => {
    const outputs = [ran(row(0, A)), ran('', null)];
    const { host, time, told } = watch({
      runSmi: () => Promise.resolve(outputs.shift() ?? ran('', null)),
    });
    await times(told, 1);
    expect(host.facts.gpus).toHaveLength(1);
    await vi.waitFor(() => {
      time.advance(10_000);
      expect(told.length).toBeGreaterThan(1);
    });
    expect(host.facts.gpus).toEqual([]);
  });

  it('and that no signal ends is not waited for, nor started again before it has ended', async () => {
    const hangs = Promise.withResolvers<SmiOutput>();
    let runs = 0;
    const { time, told } = watch({
      runSmi: () => {
        runs += 1;
        return runs === 1 ? hangs.promise : Promise.resolve(ran(row(0, A)));
      },
    });
    await vi.waitFor(() => {
      time.advance(10_000);
      expect(told.length).toBeGreaterThanOrEqual(3);
    });
    expect(runs).toBe(1);
    expect(new Set(told.map(({ reading }) => reading.kind))).toEqual(new Set(['unknown']));
    hangs.resolve(ran('', null));
    await vi.waitFor(() => {
      time.advance(10_000);
      expect(told.at(-1)?.reading.kind).toBe('gpus');
    });
  });
});

describe('several engines on one machine', () => {
  const OTHER = '127.0.0.1:8001' as ReplicaId;
  const lines = row(0, A) + row(1, B);

  function beside(runSmi: HostWatchOptions['runSmi']): ReturnType<typeof watch> {
    return watch({
      engines: [
        { replica: REPLICA, pid: () => 7 },
        { replica: OTHER, pid: () => null },
      ],
      processes: {
        variable: (pid) => Promise.resolve(pid === 7 ? '0' : null),
        tree: (pid) => Promise.resolve([pid]),
      },
      runSmi,
    });
  }

  it('are told of their own GPUs, one whose process nobody knows of none', async () => {
    const { told } = beside(() => Promise.resolve(ran(lines)));
    await times(told, 2);
    expect(told.map(({ uuids }) => uuids)).toEqual([[A], []]);
  });

  it('are not blamed for a lost GPU of which nobody knows whose it is', async () => {
    const { told } = beside(() =>
      Promise.resolve(ran('Unable to determine the device handle: GPU is lost.\n', 15)),
    );
    await times(told, 2);
    expect(told.map(({ reading }) => reading.kind)).toEqual(['unknown', 'unknown']);
  });
});

describe('the GPUs of an engine', () => {
  const gpus = [A, B].map((uuid, index) => ({ uuid, index }) as GpuFacts);
  const none = new Map<number, ReadonlySet<string>>();
  const facts = (
    environment: Readonly<Record<number, string>>,
    children: Readonly<Record<number, readonly number[]>> = {},
  ): ProcessFacts => ({
    variable: (pid) => Promise.resolve(environment[pid] ?? null),
    tree: (pid) => Promise.resolve([pid, ...(children[pid] ?? [])]),
  });

  it.each([
    ['0', [A]],
    ['1,0', [B, A]],
    [A, [A]],
    ['GPU-bbbb', [B]],
    ['7', null],
    ['', null],
    ['-1', null],
    ['MIG-cccccccc-0000-0000-0000-000000000000', null],
    [null, null],
  ])('that may see %j are %j', (value, expected) => {
    expect(visibleGpus(value, gpus)).toEqual(expected);
  });

  it('are all of the machine until its process is known', async () => {
    expect(await new GpuAssignment(facts({})).of(null, gpus, none)).toBeNull();
  });

  it('stay its own when one of them vanishes and the numbers of the others move up', async () => {
    const assignment = new GpuAssignment(facts({ 7: '1' }));
    expect(await assignment.of(7, gpus, none)).toEqual([B]);
    expect(await assignment.of(7, [{ ...gpus[0], index: 0 } as GpuFacts], none)).toEqual([B]);
  });

  it('are those on which the driver counts a process of its tree, and stay so', async () => {
    const assignment = new GpuAssignment(facts({}, { 7: [8, 9] }));
    const apps = new Map([
      [9, new Set([B])],
      [99, new Set([A])],
    ]);
    expect(await assignment.of(7, gpus, none)).toBeNull();
    expect(await assignment.of(7, gpus, apps)).toEqual([B]);
    expect(await assignment.of(7, gpus, none)).toEqual([B]);
  });

  it('are found anew for another process', async () => {
    const assignment = new GpuAssignment(facts({ 7: '0', 8: '1' }));
    expect(await assignment.of(7, gpus, none)).toEqual([A]);
    expect(await assignment.of(8, gpus, none)).toEqual([B]);
  });
});
