// What a person can paste to try a router that has just started.

export interface Reachable {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  /** Clients need a key; absent: none. */
  readonly keyed?: boolean;
  /** Where operators ask; absent: where clients do. */
  readonly adminUrl?: string;
}

/** `model` null: ask the router for its models first. */
export function tryItLines(
  { host, port, tls, keyed = false, adminUrl }: Reachable,
  model: string | null,
): string[] {
  const base = baseUrl(host, port, tls);
  const name = model ?? '<model, see /v1/models>';
  const body = `{"model": "${name}", "messages": [{"role": "user", "content": "Hello"}], "stream": true}`;
  const key = keyed ? [`      -H 'authorization: Bearer <key>' \\`] : [];
  return [
    '',
    `Spillway listens on ${base}`,
    '',
    '  curl:',
    `    curl -N ${base}/v1/chat/completions -H 'content-type: application/json' \\`,
    ...key,
    `      -d '${body}'`,
    '',
    '  Python, with the OpenAI SDK:',
    '    from openai import OpenAI',
    `    client = OpenAI(base_url="${base}/v1", api_key="${keyed ? '<key>' : 'none'}")`,
    `    print(client.chat.completions.create(model="${name}",`,
    '          messages=[{"role": "user", "content": "Hello"}]).choices[0].message.content)',
    '',
    `  status:  ${adminUrl ?? base}/status`,
    `  metrics: ${adminUrl ?? base}/metrics`,
    '',
  ];
}

/** Of a listener that was told to listen at `listen` (host:port) and has this port. */
export function urlOfListener(listen: string, port: number, tls: boolean): string {
  return baseUrl(listen.slice(0, listen.lastIndexOf(':')).replace(/^\[|\]$/g, ''), port, tls);
}

function baseUrl(host: string, port: number, tls: boolean): string {
  const reachable = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  const shown = reachable.includes(':') ? `[${reachable}]` : reachable;
  return `${tls ? 'https' : 'http'}://${shown}:${port}`;
}
