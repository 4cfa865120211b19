import { describe, expect, test } from 'vitest';
import { computeApps, gpuReading, isUnknownField } from './nvidia-smi.ts';
import type { GpuFacts } from './policy/gpu-presence.ts';

const UUID = 'GPU-8f2b9f9c-0a3e-7f6d-1c0e-5b1f0c7a9d11';
const OTHER = 'GPU-11111111-2222-3333-4444-555555555555';
const BUSY = `0, ${UUID}, NVIDIA H200, 143771, 120034, 61, 98, 643.21, 0x0000000000000004`;

function read(
  stdout: string,
  exitCode: number | null = 0,
  stderr = '',
): Partial<GpuFacts>[] | string {
  const reading = gpuReading({ exitCode, stdout, stderr });
  return reading.kind === 'gpus' ? [...reading.gpus] : reading.kind;
}

describe('rows', () => {
  const MIB = 1_024 ** 2;
  const cases: [string, string, Partial<GpuFacts>][] = [
    [
      'a busy data-centre GPU at its power limit is not throttled',
      BUSY,
      {
        index: 0,
        uuid: UUID,
        name: 'NVIDIA H200',
        memoryTotalBytes: 143_771 * MIB,
        memoryUsedBytes: 120_034 * MIB,
        temperatureC: 61,
        utilisationRatio: 0.98,
        powerW: 643.21,
        throttled: false,
        lost: false,
      },
    ],
    [
      'heat throttles',
      `0, ${UUID}, NVIDIA L4, 23034, 21000, 87, 100, 40.00, 0x0000000000000020`,
      { throttled: true },
    ],
    [
      'the hardware’s own slowdown throttles',
      `0, ${UUID}, NVIDIA L4, 23034, 21000, 87, 100, 40.00, 0x0000000000000048`,
      { throttled: true },
    ],
    [
      'idle clocks are no throttling',
      `0, ${UUID}, NVIDIA L4, 23034, 0, 30, 0, 12.00, 0x0000000000000001`,
      { throttled: false, utilisationRatio: 0, memoryUsedBytes: 0 },
    ],
    [
      'a GPU in MIG mode has no utilisation',
      `0, ${UUID}, NVIDIA A100-SXM4-80GB, 81920, 45, 34, [N/A], 65.12, 0x0000000000000000`,
      { utilisationRatio: null, temperatureC: 34, lost: false },
    ],
    [
      'what the board does not support is unknown, not 0',
      `0, ${UUID}, Tesla K80, 11441, 0, 33, 0, [Not Supported], [Not Supported]`,
      { powerW: null, throttled: null, lost: false },
    ],
    [
      'without permission nothing but the name is known, and nothing is lost',
      `0, ${UUID}, NVIDIA H100, [Insufficient Permissions], [Insufficient Permissions], [N/A], [N/A], [N/A], [N/A]`,
      { memoryTotalBytes: null, memoryUsedBytes: null, temperatureC: null, lost: false },
    ],
    [
      'an integrated GPU without memory of its own',
      `0, ${UUID}, NVIDIA GB10, [N/A], [N/A], 45, 3, 8.10, 0x0000000000000000`,
      { memoryTotalBytes: null, temperatureC: 45, lost: false },
    ],
    [
      'a GPU that has fallen off the bus',
      `0, ${UUID}, NVIDIA H200, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]`,
      { lost: true, temperatureC: null },
    ],
    [
      'a GPU that waits for a reset',
      `0, ${UUID}, NVIDIA H200, 143771, [GPU requires reset], [GPU requires reset], [N/A], [N/A], [N/A]`,
      { lost: true },
    ],
    [
      'a GPU that answers with errors only',
      `0, ${UUID}, NVIDIA H200, 143771, [Unknown Error], [Unknown Error], ERR!, ERR!, [N/A]`,
      { lost: true },
    ],
    [
      'one error among figures is none of its life',
      `0, ${UUID}, NVIDIA H200, 143771, 100, [Unknown Error], 5, ERR!, [N/A]`,
      { lost: false, memoryUsedBytes: 100 * MIB, temperatureC: null },
    ],
    [
      'an older driver without the mask',
      `0, ${UUID}, NVIDIA H200, 143771, 100, 40, 5, 90.1`,
      { throttled: null, powerW: 90.1 },
    ],
  ];
  test.each(cases)('%s', (_, row, expected) => {
    expect(read(row)).toMatchObject([expected]);
  });

  test('several GPUs, line ends of another system', () => {
    const rows = read(`${BUSY}\r\n1, ${OTHER}, NVIDIA H200, 143771, 0, 30, 0, 70.1, 0x0\r\n`);
    expect(rows).toMatchObject([{ index: 0 }, { index: 1, uuid: OTHER }]);
  });
});

describe('the whole answer', () => {
  const lost =
    'Unable to determine the device handle for GPU0000:05:00.0: GPU is lost.  Reboot the system to recover this GPU';
  const cases: [string, Parameters<typeof read>, unknown][] = [
    ['a machine whose driver has no GPU', ['No devices were found\n', 6], []],
    ['one lost GPU that spoils the whole answer', ['', 15, `${lost}\n`], 'lost'],
    ['a lost GPU beside one that answers', [`${BUSY}\n`, 0, `${lost}\n`], [{ uuid: UUID }]],
    [
      'no driver',
      [
        'NVIDIA-SMI has failed because it couldn’t communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n',
        9,
      ],
      'unknown',
    ],
    [
      'a library of another version',
      ['Failed to initialize NVML: Driver/library version mismatch\n', 18],
      'unknown',
    ],
    ['a time-out', ['', null], 'unknown'],
    ['half an answer before the time-out', [BUSY, null], 'unknown'],
    ['nothing', ['', 0], 'unknown'],
    ['garbage', ['<html>,<body>\n,,,,\n', 0], 'unknown'],
  ];
  test.each(cases)('%s', (_, output, expected) => {
    if (typeof expected === 'string') expect(read(...output)).toBe(expected);
    else expect(read(...output)).toMatchObject(expected as object);
  });
});

test('an older driver says that it does not know a field', () => {
  const stdout = 'Field "clocks_event_reasons.active" is not a valid field to query.\n';
  expect(isUnknownField({ exitCode: 2, stdout, stderr: '' })).toBe(true);
  expect(isUnknownField({ exitCode: 0, stdout: BUSY, stderr: '' })).toBe(false);
});

test('compute processes by GPU; what is not a process is left out', () => {
  const stdout = `4242, ${UUID}\n4242, ${OTHER}\n17, ${UUID}\n[N/A], ${UUID}\n5, [N/A]\nNo running processes found\n`;
  const apps = computeApps(stdout);
  expect([...apps.keys()]).toEqual([4_242, 17]);
  expect([...(apps.get(4_242) ?? [])]).toEqual([UUID, OTHER]);
});
