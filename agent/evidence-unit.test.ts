import { describe, expect, it, vi } from 'vitest';
import { ManualTime } from '../shared/runtime/manual-time.ts';
import { parseUnit, UnitWitness } from './evidence-unit.ts';

function shown(more: Readonly<Record<string, string | number>> = {}): string {
  const values = {
    LoadState: 'loaded',
    ActiveState: 'active',
    SubState: 'running',
    MainPID: 4_242,
    NRestarts: 0,
    ...more,
  };
  return `${Object.entries(values)
    .map(([key, value]) => `${key}=${value}`)
    .join('\n')}\n`;
}

describe('what systemctl show prints', () => {
  it.each([
    [
      'a running unit',
      shown(),
      { activeState: 'active', subState: 'running', mainPid: 4_242, restarts: 0 },
    ],
    [
      'a unit between two starts',
      shown({ ActiveState: 'activating', SubState: 'auto-restart', MainPID: 0, NRestarts: 7 }),
      { activeState: 'activating', subState: 'auto-restart', mainPid: null, restarts: 7 },
    ],
    [
      'an older systemd without a count of restarts',
      'LoadState=loaded\nActiveState=failed\nSubState=failed\nMainPID=0\n',
      { activeState: 'failed', subState: 'failed', mainPid: null, restarts: null },
    ],
    ['a unit that is not there', shown({ LoadState: 'not-found', ActiveState: 'inactive' }), null],
    ['nothing', '', null],
    ['an error in words', 'System has not been booted with systemd as init system\n', null],
  ])('%s', (_, text, expected) => {
    expect(parseUnit(text)).toEqual(expected);
  });
});

function witness(
  show: () => Promise<string>,
  lives: () => boolean = () => true,
): { readonly unit: UnitWitness; readonly time: ManualTime; readonly asked: () => number } {
  const time = new ManualTime();
  let asked = 0;
  const unit = new UnitWitness({
    unit: 'vllm.service',
    clock: time,
    showUnit: () => {
      asked += 1;
      return show();
    },
    processLives: () => Promise.resolve(lives()),
  });
  return { unit, time, asked: () => asked };
}

describe('a unit', () => {
  it('is unknown until systemd has answered, and is not waited for', async () => {
    let answer: (text: string) => void = () => {};
    const { unit, asked } = witness(() => new Promise((resolve) => (answer = resolve)));
    expect(await unit.sight('refuses')).toBeNull();
    expect(await unit.sight('refuses')).toBeNull();
    expect(asked()).toBe(1);
    answer(shown());
    await vi.waitFor(async () =>
      expect(await unit.sight('refuses')).toMatchObject({ mainPid: 4_242 }),
    );
  });

  it('is asked every second while the port refuses, when it opens, then every 10 s', async () => {
    const { unit, time, asked } = witness(() => Promise.resolve(shown()));
    await vi.waitFor(async () => expect(await unit.sight('refuses')).not.toBeNull());
    const looks = [
      [999, 'refuses', 1],
      [1, 'refuses', 2],
      [100, 'answers', 3],
      [9_999, 'answers', 3],
      [1, 'answers', 4],
    ] as const;
    for (const [laterMs, port, expected] of looks) {
      time.advance(laterMs);
      await unit.sight(port);
      await Promise.resolve();
      await vi.waitFor(() => expect(asked()).toBe(expected));
    }
  });

  it('whose main process is gone says so at once, before systemd is asked again', async () => {
    let alive = true;
    const { unit } = witness(
      () => Promise.resolve(shown()),
      () => alive,
    );
    await vi.waitFor(async () =>
      expect(await unit.sight('answers')).toMatchObject({ mainLives: true }),
    );
    alive = false;
    expect(await unit.sight('refuses')).toMatchObject({ activeState: 'active', mainLives: false });
  });

  it('on a machine without systemd is unknown, and seldom asked for', async () => {
    const { unit, time, asked } = witness(() =>
      Promise.reject(new Error('spawn systemctl ENOENT')),
    );
    for (let look = 0; look < 20; look += 1) {
      expect(await unit.sight('refuses')).toBeNull();
      await Promise.resolve();
      time.advance(1_000);
    }
    expect(asked()).toBe(1);
  });
});
