// Certificates for tests, made from keys of this very run: a small DER writer (ITU-T X.690) around `node:crypto`, so
// that no test needs a tool or a file that expires.

import {
  createPublicKey,
  generateKeyPairSync,
  randomBytes,
  sign,
  type KeyObject,
} from 'node:crypto';
import { isIP } from 'node:net';

export interface MadeCertificate {
  /** PEM. */
  readonly cert: string;
  readonly key: string;
}

export interface CertificateWishes {
  readonly commonName: string;
  /** Names and addresses that it is for. */
  readonly names?: readonly string[];
  /** Days from now. */
  readonly fromDays?: number;
  readonly untilDays?: number;
}

export interface Authority extends MadeCertificate {
  issue(wishes: CertificateWishes): MadeCertificate;
}

const DAY_MS = 86_400_000;
const OID = {
  commonName: [0x55, 4, 3],
  basicConstraints: [0x55, 29, 19],
  alternativeNames: [0x55, 29, 17],
  ecdsaSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
} as const;

export function makeAuthority(commonName: string): Authority {
  const pair = keyPair();
  const own = { commonName, pair };
  return {
    cert: certificate(
      { commonName, fromDays: -100, untilDays: 100 },
      { subject: pair, issuer: own, authority: true },
    ),
    key: pem(pair),
    issue(wishes) {
      const subject = keyPair();
      const cert = certificate(wishes, { subject, issuer: own, authority: false });
      return { cert, key: pem(subject) };
    },
  };
}

interface Parties {
  readonly subject: KeyObject;
  readonly issuer: { readonly commonName: string; readonly pair: KeyObject };
  readonly authority: boolean;
}

function keyPair(): KeyObject {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
}

function pem(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }).toString();
}

function certificate(wishes: CertificateWishes, { subject, issuer, authority }: Parties): string {
  const { commonName, names = [], fromDays = -1, untilDays = 30 } = wishes;
  const algorithm = sequence(oid(OID.ecdsaSha256));
  const spki = createPublicKey(subject).export({ type: 'spki', format: 'der' });
  const extensions = [
    ...(authority
      ? [extension(OID.basicConstraints, sequence(tagged(0x01, Buffer.from([0xff]))), true)]
      : []),
    ...(names.length === 0
      ? []
      : [extension(OID.alternativeNames, sequence(...names.map(alternativeName)), false)]),
  ];
  const toSign = sequence(
    tagged(0xa0, tagged(0x02, Buffer.from([2]))),
    tagged(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    distinguishedName(issuer.commonName),
    sequence(time(fromDays), time(untilDays)),
    distinguishedName(commonName),
    spki,
    ...(extensions.length === 0 ? [] : [tagged(0xa3, sequence(...extensions))]),
  );
  const signature = Buffer.concat([Buffer.from([0]), sign('sha256', toSign, issuer.pair)]);
  const der = sequence(toSign, algorithm, tagged(0x03, signature));
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

function tagged(tag: number, content: Buffer): Buffer {
  const { length } = content;
  if (length < 0x80) return Buffer.concat([Buffer.from([tag, length]), content]);
  const bytes = length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...bytes]), content]);
}

function sequence(...parts: readonly Buffer[]): Buffer {
  return tagged(0x30, Buffer.concat(parts));
}

function oid(bytes: readonly number[]): Buffer {
  return tagged(0x06, Buffer.from(bytes));
}

function distinguishedName(commonName: string): Buffer {
  const value = tagged(0x0c, Buffer.from(commonName));
  return sequence(tagged(0x31, sequence(oid(OID.commonName), value)));
}

function time(days: number): Buffer {
  const text = new Date(Date.now() + days * DAY_MS).toISOString();
  return tagged(0x17, Buffer.from(`${text.slice(2, 19).replaceAll(/[-T:]/g, '')}Z`));
}

function extension(id: readonly number[], value: Buffer, critical: boolean): Buffer {
  const flag = critical ? [tagged(0x01, Buffer.from([0xff]))] : [];
  return sequence(oid(id), ...flag, tagged(0x04, value));
}

function alternativeName(name: string): Buffer {
  if (isIP(name) === 4) return tagged(0x87, Buffer.from(name.split('.').map(Number)));
  return tagged(0x82, Buffer.from(name));
}
