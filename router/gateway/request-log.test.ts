import { expect, test } from 'vitest';
import { answeredRecord, refusedRecord } from './request-log.ts';
import { ANYBODY } from './tenants.ts';

test.each([
  ['/v1/chat/completions', 'chat'],
  ['/v1/models', 'models'],
  [`/nothing/${'x'.repeat(200)}`, `/nothing/${'x'.repeat(71)}`],
])('a request that was never understood is logged by the name of its route: %s', (path, route) => {
  const call = { id: 'r', clientId: null, client: null, tenant: ANYBODY, path };
  const end = { outcome: 'refused', code: 'invalid_request', durationMs: 1 } as const;
  expect(refusedRecord(call, end)).toMatchObject({ route, code: 'invalid_request' });
  expect(answeredRecord(call, 1)).toMatchObject({ route, status: 200 });
});
