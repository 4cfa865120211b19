// What a person can paste to try a router that has just started.

/** `model` null: ask the router for its models first. */
export function tryItLines(
  { host, port, tls }: { readonly host: string; readonly port: number; readonly tls: boolean },
  model: string | null,
): string[] {
  const reachable = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  const base = `${tls ? 'https' : 'http'}://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
  const name = model ?? '<model, see /v1/models>';
  const body = `{"model": "${name}", "messages": [{"role": "user", "content": "Hello"}], "stream": true}`;
  return [
    '',
    `Spillway listens on ${base}`,
    '',
    '  curl:',
    `    curl -N ${base}/v1/chat/completions -H 'content-type: application/json' \\`,
    `      -d '${body}'`,
    '',
    '  Python, with the OpenAI SDK:',
    '    from openai import OpenAI',
    `    client = OpenAI(base_url="${base}/v1", api_key="none")`,
    `    print(client.chat.completions.create(model="${name}",`,
    '          messages=[{"role": "user", "content": "Hello"}]).choices[0].message.content)',
    '',
    `  status:  ${base}/status`,
    `  metrics: ${base}/metrics`,
    '',
  ];
}
