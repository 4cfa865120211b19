// TLS and client keys in `fleet.yaml`. Certificates are named by file, never written into it: what changes is read
// again without a restart.

import { z } from 'zod';

const CLIENT_AUTH = ['none', 'optional', 'required'] as const;

/** A listener's own certificate, and what it asks of whoever connects. */
export function listenerTls(
  who: string,
  flags = false,
): z.ZodDefault<z.ZodNullable<z.ZodType<ListenerTls>>> {
  return z
    .strictObject({
      cert: file('Certificate, with those that lead to its CA (PEM).').meta(
        flags ? { 'x-flag': '--tls-cert', 'x-env': 'SPILLWAY_TLS_CERT' } : {},
      ),
      key: file('Its private key (PEM, without a passphrase).').meta(
        flags ? { 'x-flag': '--tls-key', 'x-env': 'SPILLWAY_TLS_KEY' } : {},
      ),
      ca: file(`CAs of the certificates that ${who} show (PEM).`)
        .nullable()
        .default(null)
        .meta({ description: `CAs of the certificates that ${who} show (PEM).` }),
      clientAuth: z
        .enum(CLIENT_AUTH)
        .default('none')
        .meta({
          description: `Certificates of ${who}: not asked for, accepted in place of a key or secret, or demanded.`,
        }),
    })
    .nullable()
    .default(null)
    .meta({ description: 'HTTPS; `null`: plain HTTP.' });
}

export interface ListenerTls {
  readonly cert: string;
  readonly key: string;
  readonly ca: string | null;
  readonly clientAuth: (typeof CLIENT_AUTH)[number];
}

/** What a server that we connect to must prove, and what we show it. */
export function peerTls(
  about: string,
  flags: object = {},
): z.ZodDefault<z.ZodNullable<z.ZodType<PeerTls>>> {
  const optional = (text: string, meta: object = {}) =>
    file(text)
      .nullable()
      .default(null)
      .meta({ description: text, ...meta });
  return z
    .strictObject({
      ca: optional('CAs that vouch for it (PEM); `null`: those of the system.', flags),
      serverName: z
        .string()
        .regex(/^[A-Za-z0-9._-]{1,253}$/, 'must be a host name')
        .nullable()
        .default(null)
        .meta({
          description: 'The name that its certificate must be for; `null`: that of the URL.',
        }),
      cert: optional('Certificate that we show, where it asks for one (PEM).'),
      key: optional('Its private key (PEM, without a passphrase).'),
    })
    .nullable()
    .default(null)
    .meta({ description: about });
}

export interface PeerTls {
  readonly ca: string | null;
  readonly serverName: string | null;
  readonly cert: string | null;
  readonly key: string | null;
}

export const CLIENT_KEY = z.strictObject({
  name: z
    .string()
    .regex(/^[^\s\p{C}]{1,200}$/u, 'must be 1 to 200 printable characters without spaces')
    .meta({
      description: 'Whose key it is, for the log. It may stand twice, while a key is exchanged.',
    }),
  hash: z
    .string()
    .regex(
      /^sha256:[0-9a-f]{64}$/,
      'must be sha256: and 64 hex digits, as `spillway key new` prints it',
    )
    .meta({
      description:
        'SHA-256 of the key, as `spillway key new` prints it. The key itself is kept nowhere.',
    }),
});

function file(about: string): z.ZodString {
  return z.string().min(1).max(4_096).meta({ description: about });
}
