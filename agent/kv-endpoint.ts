// The ZeroMQ address of one rank's KV events, from what was configured for the engine.
//
// Every rank has its own: a port further each, or a suffix (`inproc://x_dp1`). A wildcard host, as it stands in the
// engine's own configuration, is the engine's host to whoever connects.

/** Null where such an address has no place for the rank. */
export function kvEndpoint(
  endpoint: string,
  of: { readonly rank: number; readonly host: string; readonly bind: boolean },
): string | null {
  const tcp = /^tcp:\/\/(.+):(\d+)$/.exec(endpoint);
  if (tcp === null) return local(endpoint, of.rank);
  const [, name = '', port = ''] = tcp;
  const any = name === '*' || name === '0.0.0.0' || name === '[::]' || name === '::';
  const host = any && !of.bind ? of.host : name;
  return `tcp://${host}:${Number(port) + of.rank}`;
}

function local(endpoint: string, rank: number): string | null {
  if (rank === 0) return endpoint;
  return endpoint.startsWith('inproc://') ? `${endpoint}_dp${rank}` : null;
}
