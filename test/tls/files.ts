// Certificates of one test as files: a CA's, and those that it has signed.

import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TlsPaths } from '../../shared/runtime/tls-files.ts';
import type { MadeCertificate } from './certificates.ts';

export class CertificateFolder {
  readonly path: string = mkdtempSync(join(tmpdir(), 'spillway-tls-'));

  /** `<name>.crt` and `<name>.key`; each is replaced as a whole. */
  write(
    name: string,
    { cert, key }: MadeCertificate,
  ): { readonly cert: string; readonly key: string } {
    return { cert: this.put(`${name}.crt`, cert), key: this.put(`${name}.key`, key) };
  }

  put(file: string, text: string): string {
    const path = join(this.path, file);
    writeFileSync(`${path}.new`, text);
    renameSync(`${path}.new`, path);
    return path;
  }

  remove(): void {
    rmSync(this.path, { recursive: true });
  }
}

export function paths(changes: Partial<TlsPaths>): TlsPaths {
  return { cert: null, key: null, ca: null, ...changes };
}
