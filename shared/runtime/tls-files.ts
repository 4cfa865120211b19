// Certificate files, read and checked as a whole before anything uses them. What is wrong is one line that names the
// file, and, where a certificate is at fault, its subject and the date.

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { readBounded } from '../config/read.ts';

/** PEM files. `cert` begins with the certificate itself, those that lead to its CA follow. */
export interface TlsPaths {
  readonly cert: string | null;
  readonly key: string | null;
  /** CAs that the other side's certificate may come from; null: those that the system trusts. */
  readonly ca: string | null;
}

export interface TlsPems {
  readonly cert?: string;
  readonly key?: string;
  readonly ca?: string;
}

/** Our own certificate. */
export interface OwnCertificate {
  readonly file: string;
  readonly subject: string;
  /** ms since 1970. */
  readonly notAfterMs: number;
}

export type TlsReading =
  | { readonly ok: true; readonly pems: TlsPems; readonly own: OwnCertificate | null }
  | { readonly ok: false; readonly error: string };

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Reads and checks. `wallMs`: now, in ms since 1970. */
export function readTls(paths: TlsPaths, wallMs: number): TlsReading {
  try {
    const ca = paths.ca === null ? null : text(paths.ca);
    if (paths.ca !== null && ca !== null) checkAuthorities(paths.ca, ca, wallMs);
    const own = paths.cert === null || paths.key === null ? null : ownPair(paths, wallMs);
    const pems = { ...(ca === null ? {} : { ca }), ...own?.pems };
    createSecureContext(pems);
    return { ok: true, pems, own: own?.certificate ?? null };
  } catch (cause) {
    if (cause instanceof Unfit) return { ok: false, error: cause.message };
    const reason = cause instanceof Error ? cause.message : String(cause);
    const files = [paths.cert, paths.key, paths.ca].filter((file) => file !== null);
    return { ok: false, error: `${files.join(', ')}: cannot be used: ${reason}` };
  }
}

/** `CN=router, O=Example`, or the names of a certificate without a subject. */
export function subjectOf(certificate: X509Certificate): string {
  const subject = certificate.subject?.replaceAll('\n', ', ') ?? '';
  return subject === '' ? (certificate.subjectAltName ?? 'without a subject') : subject;
}

/** `2027-01-31T12:00:00Z`. */
export function dateText(date: Date): string {
  return date.toISOString().replace('.000Z', 'Z');
}

/** Why a certificate is not valid now; null while it is. */
export function datesProblem(certificate: X509Certificate, wallMs: number): string | null {
  const { validFromDate, validToDate } = certificate;
  const subject = subjectOf(certificate);
  if (validToDate.getTime() < wallMs) {
    return `the certificate ${subject} expired on ${dateText(validToDate)}`;
  }
  if (validFromDate.getTime() <= wallMs) return null;
  return `the certificate ${subject} is not valid before ${dateText(validFromDate)}`;
}

/** Caught in this file: a line for the operator. */
class Unfit extends Error {}

function text(file: string): string {
  const read = readBounded(file);
  if (!read.ok) throw new Unfit(read.error);
  return read.text;
}

function ownPair(paths: TlsPaths, wallMs: number) {
  const { cert: certFile, key: keyFile } = paths;
  if (certFile === null || keyFile === null) throw new Unfit('cert and key belong together');
  const cert = text(certFile);
  const leaf = certificatesOf(certFile, cert)[0];
  if (leaf === undefined) throw new Unfit(`${certFile}: holds no certificate`);
  const problem = datesProblem(leaf, wallMs);
  if (problem !== null) throw new Unfit(`${certFile}: ${problem}`);
  const key = text(keyFile);
  if (!leaf.checkPrivateKey(privateKey(keyFile, key))) {
    throw new Unfit(
      `${keyFile}: is not the key of the certificate ${subjectOf(leaf)} (${certFile})`,
    );
  }
  const certificate: OwnCertificate = {
    file: certFile,
    subject: subjectOf(leaf),
    notAfterMs: leaf.validToDate.getTime(),
  };
  return { pems: { cert, key }, certificate };
}

function privateKey(file: string, pem: string): ReturnType<typeof createPrivateKey> {
  try {
    return createPrivateKey(pem);
  } catch (cause) {
    throw new Unfit(`${file}: holds no private key in PEM form without a passphrase`, { cause });
  }
}

/** CAs of which none is valid vouch for nobody. */
function checkAuthorities(file: string, pem: string, wallMs: number): void {
  const problems = certificatesOf(file, pem).map((each) => datesProblem(each, wallMs));
  const first = problems[0];
  if (first !== null && first !== undefined && problems.every((each) => each !== null)) {
    throw new Unfit(`${file}: ${first}`);
  }
}

function certificatesOf(file: string, pem: string): readonly X509Certificate[] {
  const blocks = pem.match(CERTIFICATE) ?? [];
  if (blocks.length === 0) throw new Unfit(`${file}: holds no certificate in PEM form`);
  return blocks.map((block, i) => {
    try {
      return new X509Certificate(block);
    } catch (cause) {
      throw new Unfit(`${file}: its certificate ${i + 1} is damaged`, { cause });
    }
  });
}
