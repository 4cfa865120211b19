import { expect, test } from 'vitest';
import type { EngineClient } from './engines/client.ts';
import { identifyEngine } from './scrape.ts';

/** An engine that answers `get` with these bodies. */
function engine(bodies: Readonly<Record<string, unknown>>): EngineClient {
  const get: EngineClient['get'] = (path) =>
    Promise.resolve({ kind: 'answer', status: 200, body: JSON.stringify(bodies[path]) });
  return { get } as EngineClient;
}

test('names that a report cannot carry are left out: they would end the link to every router', async () => {
  const long = 'x'.repeat(513);
  const identified = await identifyEngine(
    engine({
      '/version': { version: long },
      '/v1/models': {
        data: [
          { id: long, owned_by: 'vllm' },
          { id: 'm', owned_by: long, parent: null, max_model_len: 1_000 },
          { id: 'lora', parent: 'm' },
        ],
      },
    }),
  );
  expect(identified).toMatchObject({
    identity: { version: null, models: [{ id: 'm', maxModelLen: 1_000, loras: ['lora'] }] },
  });
});
