import { readFileSync } from 'node:fs';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import {
  connect,
  createServer as createTcpServer,
  type AddressInfo,
  type Server,
  type Socket,
} from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { seededRandom } from '../../shared/lib/random.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { createLog } from '../../shared/runtime/log.ts';
import { testRuntime } from '../../shared/runtime/link-fakes.ts';
import { ManualTime } from '../../shared/runtime/manual-time.ts';
import { TlsStore } from '../../shared/runtime/tls-material.ts';
import { makeAuthority } from '../../test/tls/certificates.ts';
import { CertificateFolder, paths } from '../../test/tls/files.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { parseEngineSimOptions } from '../../sim/engine/http/flag-values.ts';
import type { EngineSimValues } from '../../sim/engine/http/flags.ts';
import { describeSurvey, surveyEngines } from './survey.ts';

let ending: (() => Promise<void>)[] = [];

afterEach(async () => {
  await Promise.all(ending.map((end) => end()));
  ending = [];
});

async function listening(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => sockets.add(socket));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ending.push(
    () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  );
  return (server.address() as AddressInfo).port;
}

const http = (answer: RequestListener): Promise<number> => listening(createHttpServer(answer));

async function engine(values: EngineSimValues = {}): Promise<string> {
  const parsed = parseEngineSimOptions({ port: '0', model: 'm', loadingMs: '0', ...values });
  if (!parsed.ok) throw new Error(parsed.problems.join('\n'));
  const runtime = {
    clock: systemClock,
    timers: systemTimers,
    random: seededRandom(1),
    log: createLog({ level: 'silent', readable: false }),
  };
  const server = await startEngineServer(parsed.options, runtime);
  ending.push(() => server.close());
  await server.whenServing();
  return server.url;
}

async function survey(...urls: string[]) {
  return surveyEngines({ urls, kinds: [], apiKey: null, timeoutMs: 1_000 });
}

/** An engine that answers these paths; others are 404. */
async function scripted(answers: Readonly<Record<string, string | object>>): Promise<string> {
  const port = await http((question, answer) => {
    const found = answers[question.url ?? ''];
    if (found === undefined) answer.writeHead(404).end();
    else answer.end(typeof found === 'string' ? found : JSON.stringify(found));
  });
  return `http://127.0.0.1:${port}`;
}

async function linesOf(...urls: string[]): Promise<string[]> {
  const result = await survey(...urls);
  if (!result.ok) throw new Error(result.problems.join('\n'));
  return describeSurvey(result.engines);
}

const recorded = (file: string): string =>
  readFileSync(new URL(`../../test/fixtures/metrics/${file}`, import.meta.url), 'utf8');

const models = (owner: string): object => ({ data: [{ id: 'm', owned_by: owner }] });
const completion = {
  choices: [],
  usage: { prompt_tokens: 5, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 4 } },
};

async function problemsOf(...urls: string[]): Promise<string> {
  const result = await survey(...urls);
  return result.ok ? 'no problem' : result.problems.join('\n');
}

describe('a look at engines', () => {
  it('says kind, version, model and context length', async () => {
    const url = await engine();
    const result = await survey(url);
    if (!result.ok) throw new Error(result.problems.join('\n'));
    const lines = describeSurvey(result.engines);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/^found {4}http:\/\/127\.0\.0\.1:\d+: vLLM 0\.32\.0, m, \d+ tokens/);
  });

  it('says what is missing and what that costs, found out with real completions', async () => {
    const result = await survey(await engine({ promptTokensDetails: false }));
    if (!result.ok) throw new Error(result.problems.join('\n'));
    expect(describeSurvey(result.engines)[1]).toMatch(
      /without --enable-prompt-tokens-details: predicted cache hits cannot be compared/,
    );
  });

  it('names some of the models of a server that has many', async () => {
    const data = Array.from({ length: 30 }, (_, at) => ({ id: `m${at + 10}`, owned_by: 'me' }));
    const [line] = await linesOf(
      await scripted({ '/v1/models': { data }, '/v1/completions': completion }),
    );
    expect(line).toContain(', m10, m11, m12, m13, m14, m15, m16, m17 and 22 more');
  });

  it('names what is missing of SGLang in its own words', async () => {
    const plain = { choices: [], usage: { prompt_tokens: 5, completion_tokens: 1 } };
    const lines = await linesOf(
      await scripted({ '/v1/models': models('sglang'), '/v1/completions': plain }),
    );
    expect(lines[0]).toContain(': SGLang, m');
    expect(lines[1]).toContain('without --enable-metrics: its load is unknown');
    expect(lines[2]).toContain('without --enable-cache-report: ');
    expect(lines).toHaveLength(3);
  });

  it('says nothing more of SGLang that tells all it can, with what only streams have left out', async () => {
    const lines = await linesOf(await engine({ kind: 'sglang', metrics: true, cacheReport: true }));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(/: SGLang 0\.5\.18, m, \d+ tokens of context$/);
  });

  it('says what no flag would change: TGI has no preemptions, KV usage and cached tokens', async () => {
    const lines = await linesOf(
      await scripted({
        '/v1/models': models('m'),
        '/metrics': recorded('tgi-v3-datadog.prom'),
        '/info': {
          model_id: 'm',
          version: '3.3.5',
          max_total_tokens: 4_096,
          max_batch_total_tokens: 8,
        },
        '/v1/completions': { choices: [], usage: { prompt_tokens: 5, completion_tokens: 1 } },
      }),
    );
    expect(lines[0]).toContain(': TGI 3.3.5, m, 4096 tokens of context');
    expect(lines[1]).toContain('without cached tokens in its usage (no version has them): ');
    expect(lines[2]).toMatch(
      /it does not tell \(see docs\/engines\.md\): how full its KV cache is, .*, preemptions$/,
    );
  });

  it('says what llama.cpp needs', async () => {
    const lines = await linesOf(
      await scripted({
        '/v1/models': models('llamacpp'),
        '/props': { total_slots: 4, default_generation_settings: { n_ctx: 2_048 } },
        '/v1/completions': completion,
      }),
    );
    expect(lines[0]).toContain(': llama.cpp, m, 2048 tokens of context');
    expect(lines[1]).toContain('without --metrics: ');
    expect(lines).toHaveLength(2);
  });

  it('says of a server of no known kind what follows', async () => {
    const url = await scripted({ '/v1/models': models('me'), '/v1/completions': completion });
    const lines = await linesOf(url);
    expect(lines[0]).toContain(': OpenAI-compatible server, m');
    expect(lines[1]).toContain('only what routers send is known: it is served with bounded');
    expect(lines).toHaveLength(2);
  });

  it('takes the kind that a person says, and says what it answers as', async () => {
    const url = await engine();
    const result = await surveyEngines({
      urls: [url],
      kinds: ['generic'],
      apiKey: null,
      timeoutMs: 1_000,
    });
    if (!result.ok) throw new Error(result.problems.join('\n'));
    expect(result.engines[0]?.kind).toBe('generic');
    const lines = describeSurvey(result.engines);
    expect(lines[0]).toContain(': OpenAI-compatible server, m');
    expect(lines[1]).toContain(
      'taken for OpenAI-compatible server, as you said; it answers as vLLM',
    );
  });

  it('waits for an engine that is not up yet', async () => {
    const port = await http(() => undefined);
    await Promise.all(ending.splice(0).map((end) => end()));
    const result = await survey(`http://127.0.0.1:${port}`);
    if (!result.ok) throw new Error(result.problems.join('\n'));
    expect(describeSurvey(result.engines)[0]).toMatch(/^waiting .*nothing listens there yet/);
  });

  it('waits for an engine that says that it is loading', async () => {
    const port = await http((_, response) => response.writeHead(503).end('loading'));
    const result = await survey(`http://127.0.0.1:${port}`);
    expect(result.ok && describeSurvey(result.engines)[0]).toMatch(/^waiting .*still loading/);
  });
});

describe('bad input names the URL and why', () => {
  it('a path /v1', async () => {
    expect(await problemsOf('http://127.0.0.1:9/v1')).toBe(
      'http://127.0.0.1:9/v1: ends in /v1, which Spillway adds itself; write http://127.0.0.1:9',
    );
  });

  it('no scheme, or none that engines speak', async () => {
    expect(await problemsOf('localhost:8000')).toContain(
      'has no scheme; write http://localhost:8000',
    );
    expect(await problemsOf('ftp://127.0.0.1')).toContain('must start with http:// or https://');
    expect(await problemsOf('banana')).toContain('is not a URL');
  });

  it('a name without an address', async () => {
    expect(await problemsOf('http://engine.invalid:8000')).toMatch(
      /^http:\/\/engine\.invalid:8000: the name engine\.invalid has no address/,
    );
  });

  it('the same engine twice, under whatever name', async () => {
    const url = await engine();
    const other = url.replace('127.0.0.1', 'localhost');
    expect(await problemsOf(url, other)).toBe(`${other}: is the same engine as ${url}`);
    expect(await problemsOf(url, `${url}/`)).toContain('is the same engine');
  });

  it('https on an http port', async () => {
    const url = await engine();
    const https = url.replace('http:', 'https:');
    expect(await problemsOf(https)).toBe(`${https}: does not speak https; write ${url}`);
  });

  it('an https engine whose CA is not trusted, and is found where it is named', async () => {
    const authority = makeAuthority('engines ca');
    const inner = await engine();
    const own = authority.issue({ commonName: 'engine', names: ['127.0.0.1'] });
    const front = createTlsServer(own, (socket) => {
      const plain = connect(Number(new URL(inner).port), '127.0.0.1');
      for (const end of [socket, plain]) end.on('error', () => undefined);
      socket.pipe(plain).pipe(socket);
    });
    const url = `https://127.0.0.1:${await listening(front)}`;
    expect(await problemsOf(url)).toMatch(
      new RegExp(
        `^${url}: its certificate CN=engine \\(until .*\\) does not come from a CA that the system trusts; name its CA with --engine-ca$`,
      ),
    );
    const folder = new CertificateFolder();
    const store = new TlsStore({ ...testRuntime(), timers: new ManualTime() });
    const material = store.open(paths({ ca: folder.put('ca.crt', authority.cert) }));
    const trust = { material, serverName: null };
    const found = await surveyEngines({
      urls: [url],
      kinds: [],
      apiKey: null,
      trust,
      timeoutMs: 1_000,
    });
    folder.remove();
    expect(found).toMatchObject({ ok: true, engines: [{ url, detection: { kind: 'found' } }] });
  });

  it('http on an https port', async () => {
    const port = await listening(createTlsServer({}));
    expect(await problemsOf(`http://127.0.0.1:${port}`)).toBe(
      `http://127.0.0.1:${port}: speaks https; write https://127.0.0.1:${port}`,
    );
  });

  it('something that speaks HTTP and is no engine', async () => {
    const missing = await http((_, response) => response.writeHead(404).end('nothing'));
    expect(await problemsOf(`http://127.0.0.1:${missing}`)).toContain(
      'answers HTTP but is no engine: it has no model list at /v1/models (HTTP 404)',
    );
    const page = await http((_, response) => response.end('<html>hello</html>'));
    expect(await problemsOf(`http://127.0.0.1:${page}`)).toContain('is no engine');
  });

  it('something that speaks another language', async () => {
    const port = await listening(
      createTcpServer((socket) => {
        socket.on('error', () => undefined);
        socket.end('SSH-2.0-OpenSSH_9.2\r\n');
      }),
    );
    expect(await problemsOf(`http://127.0.0.1:${port}`)).toContain('it does not speak HTTP');
  });

  it('an engine that asks for a key', async () => {
    expect(await problemsOf(await engine({ apiKey: 'k' }))).toContain(
      'set SPILLWAY_ENGINE_API_KEY',
    );
  });

  it('two different models', async () => {
    const [one, two] = [await engine(), await engine({ model: 'other' })];
    expect(await problemsOf(one, two)).toContain(`${two}: serves other, but ${one} serves m`);
  });

  it('every problem at once', async () => {
    const problems = await problemsOf('http://127.0.0.1:9/v1', 'http://engine.invalid:1');
    expect(problems.split('\n')).toHaveLength(2);
  });
});
