// What it means that an engine's URL gave no HTTP answer.

import { connect } from 'node:tls';
import type { Detection, DetectOptions } from './facts.ts';

export async function explainFailure(
  cause: unknown,
  { url, timeoutMs }: DetectOptions,
): Promise<Detection> {
  const code = codeOf(cause);
  const { hostname, port } = new URL(url);
  const at = { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port === '' ? 80 : port) };
  switch (code) {
    case 'ECONNREFUSED':
      return { kind: 'waiting', why: `${url}: nothing listens there yet; waiting for the engine` };
    case 'TimeoutError':
      return { kind: 'waiting', why: `${url}: no answer within ${timeoutMs} ms; waiting for it` };
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
      return { kind: 'wrong', why: `${url}: cannot be reached from here (${code})` };
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'EPROTO':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return {
        kind: 'wrong',
        why: `${url}: does not speak https; write ${url.replace(/^https:/, 'http:')}`,
      };
    default:
      break;
  }
  if (url.startsWith('https:') && /CERT|SELF_SIGNED|SIGNATURE|ALTNAME/.test(code)) {
    const line = cause instanceof Error ? cause.message : code;
    return { kind: 'wrong', why: `${line}; name its CA with --engine-ca` };
  }
  if (url.startsWith('http:') && (await speaksTls(at, timeoutMs))) return speaksHttps(url);
  return {
    kind: 'wrong',
    why: `${url}: something listens there, but it does not speak HTTP (${code})`,
  };
}

function codeOf(error: unknown): string {
  let inner: unknown = error;
  let code = '';
  for (let depth = 0; depth < 5 && inner instanceof Error; depth += 1) {
    if (inner.name === 'TimeoutError') return 'TimeoutError';
    if ('code' in inner && typeof inner.code === 'string') code = inner.code;
    if (inner instanceof AggregateError) inner = inner.errors[0];
    else inner = inner.cause;
  }
  return code === '' ? 'no HTTP answer' : code;
}

function speaksTls(at: { host: string; port: number }, timeoutMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    // The certificate does not matter: only whether the other side shakes hands.
    const socket = connect({ ...at, rejectUnauthorized: false, timeout: timeoutMs });
    const end = (spoke: boolean): void => {
      socket.destroy();
      resolve(spoke);
    };
    socket.once('secureConnect', () => end(true));
    // An alert (no common cipher, a certificate asked for) is TLS too; an answer in another language is not.
    socket.once('error', (error: NodeJS.ErrnoException) =>
      end(/^ERR_SSL_.*ALERT/.test(error.code ?? '')),
    );
    socket.once('timeout', () => end(false));
  });
}

export function speaksHttps(url: string): Detection {
  const better = url.replace(/^http:/, 'https:');
  return { kind: 'wrong', why: `${url}: speaks https; write ${better}` };
}
