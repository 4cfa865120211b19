// The kinds of values that `fleet.yaml` has. A number is written in the unit that its key names (`holdMs: 60`);
// the unit stands in the schema's metadata too, so that the generated reference can show it.

import { isIP } from 'node:net';
import { z } from 'zod';
import { parseListen } from './address.ts';

export type Unit = 'ms' | 'bytes' | 'tokens' | 'requests' | 'ratio' | 'per second' | 'count';

interface Range {
  readonly unit: Unit;
  readonly min: number;
  readonly max: number;
}

/** Units of which there are only whole ones. */
const WHOLE: ReadonlySet<Unit> = new Set(['bytes', 'tokens', 'requests', 'count']);

/** A number without a default. */
export function bounded(about: string, range: Range): z.ZodNumber {
  const base = WHOLE.has(range.unit) ? z.number().int() : z.number();
  return base.min(range.min).max(range.max).meta({ description: about, 'x-unit': range.unit });
}

export function quantity(
  about: string,
  range: Range & { readonly default: number },
): z.ZodDefault<z.ZodNumber> {
  return bounded(about, range)
    .default(range.default)
    .meta({ description: about, 'x-unit': range.unit });
}

export function flag(byDefault: boolean, about: string): z.ZodDefault<z.ZodBoolean> {
  return z.boolean().default(byDefault).meta({ description: about });
}

/** Pools, regions, models: at most 200 printable characters without spaces. */
export function name(about: string): z.ZodString {
  return z
    .string()
    .regex(/^[^\s\p{C}]{1,200}$/u, 'must be 1 to 200 printable characters without spaces')
    .meta({ description: about });
}

/** A key or bearer secret. The metadata keeps its value out of every print. */
export function secret(about: string): z.ZodString {
  return z
    .string()
    .regex(/^[\x21-\x7e]{1,512}$/, 'must be 1 to 512 visible ASCII characters')
    .meta({ description: about, 'x-secret': true });
}

/** `host:port`. Port 0 lets the system choose. */
export function listen(about: string): z.ZodString {
  return z
    .string()
    .refine((text) => parseListen(text) !== null, 'must be host:port, for example 127.0.0.1:8080')
    .meta({ description: about });
}

/** A base URL: scheme, host and port, no path. */
export function baseUrl(schemes: readonly string[], about: string): z.ZodString {
  return z
    .string()
    .check((context) => {
      const problem = baseUrlProblem(context.value, schemes);
      if (problem !== null) {
        context.issues.push({ code: 'custom', message: problem, input: context.value });
      }
    })
    .meta({ description: about });
}

/** What is wrong with a base URL; null when nothing is. */
export function baseUrlProblem(text: string, schemes: readonly string[]): string | null {
  const example = `${schemes[0] ?? 'http'}://127.0.0.1:8000`;
  if (!URL.canParse(text)) return `is not a URL; write it like ${example}`;
  const url = new URL(text);
  const scheme = url.protocol.slice(0, -1);
  if (!schemes.includes(scheme))
    return `must start with ${schemes.join(':// or ')}://, like ${example}`;
  if (url.username !== '' || url.password !== '') return 'must not carry credentials';
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '') {
    return `must have no path: write ${url.origin === 'null' ? `${scheme}://${url.host}` : url.origin}`;
  }
  return null;
}

/** An origin as browsers send it, or `*`. */
export function origin(about: string): z.ZodString {
  return z
    .string()
    .refine(
      (text) => text === '*' || isOrigin(text),
      'must be * or an origin such as https://app.example.com, in lower case, without a path or default port',
    )
    .meta({ description: about });
}

/** A host of stars parses, and would match no page. */
function isOrigin(text: string): boolean {
  return !text.includes('*') && URL.canParse(text) && new URL(text).origin === text;
}

/** A ZeroMQ address that another process can reach. */
export function kvAddress(about: string): z.ZodString {
  return z
    .string()
    .max(512)
    .refine(isKvAddress, 'must be like tcp://127.0.0.1:5557, tcp://*:5557 or ipc:///run/kv-events')
    .meta({ description: about });
}

function isKvAddress(text: string): boolean {
  if (/^ipc:\/\/\S+$/.test(text)) return true;
  const port = Number(/^tcp:\/\/(?:\[[\da-fA-F:]+\]|[^\s:/]+):(\d{1,5})$/.exec(text)?.[1] ?? 0);
  return port >= 1 && port <= 65_535;
}

export function cidr(about: string): z.ZodString {
  return z
    .string()
    .refine(isCidr, 'must be an address range such as 10.0.0.0/8 or fd00::/8')
    .meta({ description: about });
}

function isCidr(text: string): boolean {
  const [address, bits, ...rest] = text.split('/');
  if (address === undefined || bits === undefined || rest.length > 0) return false;
  const family = isIP(address);
  return family !== 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}
