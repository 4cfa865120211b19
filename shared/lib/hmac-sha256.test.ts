import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { HmacSha256 } from './hmac-sha256.ts';

it('is what Node computes, whatever the key and however many texts it has been asked for', () => {
  const text = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ minLength: 1_000, maxLength: 3_000 }),
  );
  fc.assert(
    fc.property(fc.string({ maxLength: 150 }), fc.array(text, { maxLength: 5 }), (key, texts) => {
      const mac = new HmacSha256(key);
      for (const each of texts) {
        expect(mac.of(each)).toBe(createHmac('sha256', key).update(each).digest('base64url'));
      }
    }),
  );
});
