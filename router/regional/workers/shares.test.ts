import { expect, test } from 'vitest';
import { REGIONAL_DEFAULTS } from '../../../shared/model/settings.ts';
import { LIMITS, routerOptions } from '../../../test/e2e/shell-harness.ts';
import { workerShare } from './shares.ts';

const { reloadable } = routerOptions({ limits: { bodyBytes: 1_000, bodyBytesMax: 6_000 } });

test('bounds of the machine are divided, rounded up; what each holds whole is not', () => {
  const share = workerShare(reloadable, 4);
  expect(share.limits).toEqual({
    ...LIMITS,
    bodyBytes: 1_000,
    bodyBytesMax: 1_500,
    openRequests: 250,
  });
  expect(share.settings).toEqual({
    ...reloadable.settings,
    queueMaxRequests: Math.ceil(REGIONAL_DEFAULTS.queueMaxRequests / 4),
    queueMaxBytes: Math.ceil(REGIONAL_DEFAULTS.queueMaxBytes / 4),
  });
});

test('a share never forbids one request that the whole allows', () => {
  expect(workerShare(reloadable, 64).limits.bodyBytesMax).toBe(1_000);
});
