// What the demo prints: commands to paste, each with what it shows.

import { EU_URL, KEYS, MODEL, REGIONS, SPILL_INTERVAL_MS } from './fleet.ts';
import type { Stage } from './stage.ts';

export function threeRegionsWords(stage: Stage): string[] {
  const { url, adminUrl } = stage;
  const tokyo = stage.region('tokyo');
  const tokyoUrl = tokyo.url ?? 'http://…';
  const away = REGIONS.map(({ name, oneWayMs }) => `${name} (${2 * oneWayMs} ms)`).join(', ');
  const ask = (base: string, key: string, more = ''): string =>
    `curl -sS -i ${base}/v1/chat/completions -H 'authorization: Bearer ${key}' -H 'content-type: application/json'${more} \\\n` +
    `      -d '{"model": "${MODEL}", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]}'`;
  return [
    '',
    `Spillway listens on ${url}`,
    `  three regions at a simulated distance: ${away}; the global router stands beside tokyo`,
    `  spill interval ${SPILL_INTERVAL_MS / 1_000} s, so that there is something to see (60 s unless told otherwise)`,
    '',
    '  curl, as the tenant "shop", who may be served in Asia (x-spillway-region says where):',
    `    curl -N ${url}/v1/chat/completions -H 'authorization: Bearer ${KEYS.shop}' -H 'content-type: application/json' \\`,
    `      -d '{"model": "${MODEL}", "messages": [{"role": "user", "content": "Hello"}], "stream": true}'`,
    '',
    '  Python, with the OpenAI SDK:',
    '    from openai import OpenAI',
    `    client = OpenAI(base_url="${url}/v1", api_key="${KEYS.shop}")`,
    `    print(client.chat.completions.create(model="${MODEL}",`,
    '          messages=[{"role": "user", "content": "Hello"}]).choices[0].message.content)',
    '',
    '  residency: "bank" may be served in frankfurt alone, however far that is;',
    `    ${ask(url, KEYS.bank)}`,
    '  tokyo itself refuses it (403), whoever sends it there:',
    `    ${ask(tokyoUrl, KEYS.bank)}`,
    `  and "clinic" must come in through the EU's own router (421, ${EU_URL}):`,
    `    ${ask(url, KEYS.clinic)}`,
    '',
    '  why a region was chosen (every region with its sum, those left out with the reason):',
    `    ${ask(url, KEYS.shop, " -H 'x-spillway-explain: 1'")}`,
    '',
    '  the story, scene by scene, against this demo (what was expected, what happened):',
    `    bin/spillway gameday --at ${url} --scene affinity`,
    `    bin/spillway gameday --at ${url} --scene hot            new conversations spill from tokyo to singapore, and come back`,
    `    bin/spillway gameday --at ${url} --scene death --pid ${tokyo.pid ?? '…'}   tokyo dies under load; it comes back by itself`,
    `    bin/spillway gameday --demo                                   all of it, in a demo of its own`,
    '',
    `  status:  ${adminUrl}/status   (curl -H 'accept: text/plain' for people)`,
    `  metrics: ${adminUrl}/metrics`,
    '',
  ];
}
