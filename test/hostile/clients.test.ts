// Whatever a client sends, it gets the right answer, it is counted, and nothing of it stays.

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOSTILE_BODIES, type HostileRequest } from './clients-bodies.ts';
import { HOSTILE_HTTP } from './clients-http.ts';
import { startSmallRegion, type SmallRegion } from './small-region.ts';
import { openWire, wireText, type WireAnswer } from './wire.ts';

let region: SmallRegion;
beforeAll(async () => {
  region = await startSmallRegion();
});
afterAll(() => region.close());

/** Ids, and the envelope with its four members. */
function isEnvelope({ status, headers, body }: WireAnswer, code: string | null): void {
  expect(headers['x-request-id']).toMatch(/^[\x21-\x7e]+$/);
  expect(headers['x-spillway-request-id']).toMatch(/^req-[0-9a-f]{24}$/);
  if (status < 400) return;
  expect(headers['content-type']).toMatch(/^application\/json/);
  expect(['true', 'false']).toContain(headers['x-should-retry']);
  const { error } = JSON.parse(body) as { error: Record<string, unknown> };
  expect(error).toMatchObject({ message: expect.any(String), type: expect.any(String) });
  if (code !== null) expect(error['code']).toBe(code);
}

async function answered({ bytes, status, code, counts = [] }: HostileRequest): Promise<void> {
  const series = [...counts, ...(code === null ? [] : [`errors_total{code="${code}"}`])];
  const before = await Promise.all(series.map((each) => region.value(each)));
  const wire = openWire(region.clientsPort);
  try {
    wire.socket.write(bytes());
    const answer = await wire.answer();
    expect(answer?.status ?? null).toBe(status);
    if (answer !== null) isEnvelope(answer, code);
  } finally {
    wire.close();
  }
  await region.settles();
  const after = await Promise.all(series.map((each) => region.value(each)));
  expect(after).toEqual(before.map((value) => value + 1));
}

describe.each([
  ['a body', HOSTILE_BODIES],
  ['HTTP', HOSTILE_HTTP],
])('%s:', (_what, list) => {
  test.each(list.map((entry) => [entry.name, entry] as const))('%s', (_name, entry) =>
    answered(entry),
  );
});

test.each([
  ['GET /nothing HTTP/1.1', '', 404, 'not_found'],
  ['DELETE /status HTTP/1.1', '', 405, 'method_not_allowed'],
  ['POST /v1/route/explain HTTP/1.1', '{', 400, 'invalid_json'],
  ['POST /v1/route/explain?route=none HTTP/1.1', '{}', 400, 'invalid_request'],
  ['POST /v1/chat/completions HTTP/1.1', '{}', 404, 'not_found'],
])("an operator's listener answers %s in the envelope", async (first, body, status, code) => {
  const wire = openWire(region.adminPort);
  const lines = ['content-type: application/json', `content-length: ${body.length}`];
  wire.socket.write(wireText(first, lines, body));
  const answer = await wire.answer();
  wire.close();
  expect(answer?.status).toBe(status);
  if (answer !== null) isEnvelope(answer, code);
  await region.settles();
});
