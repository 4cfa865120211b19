// Listener addresses: how they are written, and which of them only this machine can reach.

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** `host:port`, `[v6]:port` or `:port` (every address). Null when it is none of these. */
export function parseListen(text: string): ListenAddress | null {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]/]*)):(\d{1,5})$/.exec(text);
  if (match === null) return null;
  const port = Number(match[3]);
  if (port > 65_535) return null;
  const host = match[1] ?? match[2] ?? '';
  return { host: host === '' ? '0.0.0.0' : host, port };
}

export function formatListen(address: ListenAddress): string {
  return address.host.includes(':')
    ? `[${address.host}]:${address.port}`
    : `${address.host}:${address.port}`;
}

/** Whether only this machine reaches it. A name other than `localhost` counts as reachable from elsewhere. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}
