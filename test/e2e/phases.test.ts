// What an agent sees of real processes: engines that are killed while they load, seen by each kind of evidence; engines
// that answer 200 with garbage; a driver's tool that says that a GPU is gone.

import { appendFile, chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { request } from 'undici';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { runSmi } from '../../agent/host.ts';
import type { AgentEngineOptions } from '../../agent/options.ts';
import { startAgent, type RunningAgent } from '../../agent/start.ts';
import { AGENT_DEFAULTS } from '../../shared/model/settings.ts';
import type { ReplicaReport } from '../../shared/model/report.ts';
import { systemTimers } from '../../shared/runtime/timers.ts';
import { testRuntime } from '../../shared/runtime/link-fakes.ts';
import { startEngineServer } from '../../sim/engine/http/server.ts';
import { ENGINE_PROFILES } from '../../sim/engine/profiles.ts';
import { freePort } from '../free-ports.ts';
import { agentOptions } from './agent-options.ts';
import { Running } from './fleet.ts';
import { until } from './until.ts';

const searchPath = process.env['PATH'] ?? '';
const open: (() => Promise<unknown>)[] = [];
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'spillway-phases-'));
});

afterEach(async () => {
  process.env['PATH'] = searchPath;
  for (const close of open.splice(0).toReversed()) await close();
  await rm(folder, { recursive: true });
});

/** Found before everything else of that name. */
async function onPath(name: string, script: string): Promise<void> {
  const file = join(folder, name);
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
  process.env['PATH'] = `${folder}${delimiter}${searchPath}`;
}

async function agent(
  engine: AgentEngineOptions,
  options: { readonly hostIntervalMs?: number; readonly lists?: boolean } = {},
): Promise<RunningAgent> {
  const { hostIntervalMs = 10_000, lists = false } = options;
  // What happens every 10 s happens as often as the test wants it.
  const after: typeof systemTimers.after = (delayMs, task) =>
    systemTimers.after(delayMs === 10_000 ? hostIntervalMs : delayMs, task);
  const running = await startAgent(
    agentOptions(engine, null, { settings: { scrapeIntervalMs: 100, probeIntervalMs: 300 } }),
    testRuntime({ timers: { ...systemTimers, after } }),
    lists ? {} : { listProcesses: () => Promise.resolve([]) },
  );
  open.push(() => running.close());
  return running;
}

function reportOf(running: RunningAgent): ReplicaReport | null {
  return running.status().engines[0]?.targets[0]?.report ?? null;
}

async function phase(running: RunningAgent, expected: string): Promise<void> {
  await until(() => reportOf(running)?.phase === expected, {
    timeoutMs: 25_000,
    says: () => JSON.stringify(running.status().engines[0]),
  });
}

async function get(running: RunningAgent, path: string): Promise<string> {
  return (await request(`http://127.0.0.1:${running.port}${path}`)).body.text();
}

/** A simulated engine of its own process that never ends loading. */
async function loadingEngine(): Promise<{ readonly running: Running; readonly url: string }> {
  // A command line has to name its port to be recognised by it.
  const port = await freePort();
  const args = ['engine-sim', '--port', String(port), '--loading-ms', '3600000'];
  const running = new Running(args);
  open.push(() => running.end('SIGKILL'));
  await running.says(/simulated engine/);
  return { running, url: `http://127.0.0.1:${port}` };
}

describe('an engine that is killed while it loads', () => {
  test('is dead, as its pid file tells', async () => {
    const { running, url } = await loadingEngine();
    const pidFile = join(folder, 'engine.pid');
    await writeFile(pidFile, `${running.child.pid}\n`);
    const seen = await agent({ url, advertiseUrl: url, pidFile });
    await phase(seen, 'loading');
    await running.end('SIGKILL');
    await phase(seen, 'dead');
  });

  test('is dead, as the process list tells', async () => {
    const { running, url } = await loadingEngine();
    const seen = await agent({ url, advertiseUrl: url, pidFile: null }, { lists: true });
    await phase(seen, 'loading');
    await running.end('SIGKILL');
    await phase(seen, 'dead');
  });

  test('is dead, as its unit tells before systemd itself has noticed', async () => {
    const { running, url } = await loadingEngine();
    await onPath('systemctl', `cat '${join(folder, 'unit')}'`);
    const shown = (state: string, pid: number): string =>
      `LoadState=loaded\nActiveState=${state}\nSubState=running\nMainPID=${pid}\nNRestarts=0\n`;
    await writeFile(join(folder, 'unit'), shown('active', running.child.pid ?? 0));
    const unit = 'vllm.service';
    const seen = await agent({ url, advertiseUrl: url, pidFile: null, unit });
    await phase(seen, 'loading');
    await running.end('SIGKILL');
    await phase(seen, 'dead');
  });
});

test('an engine’s log tells how far its start has come, to people and to metrics', async () => {
  const { running, url } = await loadingEngine();
  const [pidFile, log] = [join(folder, 'engine.pid'), join(folder, 'engine.log')];
  await writeFile(pidFile, `${running.child.pid}\n`);
  await writeFile(log, 'Starting to load model /models/x...\n');
  const seen = await agent({ url, advertiseUrl: url, pidFile, log });
  await until(() => reportOf(seen)?.progress?.stage === 'weights');
  await appendFile(log, '\rLoading safetensors checkpoint shards:  75% Completed | 3/4\r');
  await until(() => reportOf(seen)?.progress?.ratio === 0.75);
  const metrics = await get(seen, '/metrics');
  expect(metrics).toMatch(/replica_load_progress_ratio\{[^}]*stage="weights"[^}]*\} 0\.75/);
  expect(await get(seen, '/status')).toContain('"progress":{"stage":"weights","ratio":0.75}');
});

describe('something that answers 200', () => {
  async function server(
    answer: (path: string) => string,
  ): Promise<{ readonly url: string; readonly asked: string[] }> {
    const asked: string[] = [];
    const listening = createServer((received, response) => {
      asked.push(received.url ?? '');
      received.resume();
      response.end(answer(received.url ?? ''));
    });
    await new Promise<void>((resolve) => listening.listen(0, '127.0.0.1', resolve));
    open.push(() => new Promise((resolve) => listening.close(resolve)));
    const { port } = listening.address() as AddressInfo;
    return { url: `http://127.0.0.1:${port}`, asked };
  }

  test('to generations too, and generates nothing, is never ready', async () => {
    const models = { object: 'list', data: [{ id: 'm', object: 'model', max_model_len: 4_096 }] };
    const { url, asked } = await server((path) => {
      if (path === '/v1/models') return JSON.stringify(models);
      if (path === '/metrics') return 'vllm:num_requests_running{engine="0"} 0\n';
      return path === '/version' ? '{"version":"0.32.0"}' : '<html>It works!</html>';
    });
    const seen = await agent({ url, advertiseUrl: url, pidFile: null, kind: 'vllm' });
    await phase(seen, 'warming');
    await until(() => asked.filter((path) => path.includes('completions')).length >= 2);
    expect(reportOf(seen)).toMatchObject({ phase: 'warming', probe: { ok: false } });
  });
});

describe('the GPUs of an engine', () => {
  const uuids = ['a', 'b'].map((letter) => `GPU-${letter.repeat(8)}-0000-0000-0000-000000000000`);
  const rows = (states: readonly string[]): string =>
    states
      .map((state, at) => `${at}, ${uuids[at]}, NVIDIA H200, 143771, ${state}, 0x0000000000000000`)
      .join('\n');
  const FINE = '9000, 55, 40, 300.10';
  const GONE = '[GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]';

  test('are in report and metrics; one that vanishes degrades it until it is back and probes are good', async () => {
    const answer = join(folder, 'answer');
    await writeFile(answer, rows([FINE, FINE]));
    await onPath('nvidia-smi', `case "$1" in --query-gpu*) cat '${answer}' ;; esac`);
    const profile = ENGINE_PROFILES['cpu-tiny-llama']!;
    const engine = await startEngineServer(
      { host: '127.0.0.1', port: 0, model: 'tiny', profile, loadingMs: 0 },
      testRuntime(),
    );
    open.push(() => engine.close());
    const beside = { url: engine.url, advertiseUrl: engine.url, pidFile: null };
    const seen = await agent(beside, { hostIntervalMs: 50 });
    await phase(seen, 'ready');
    await until(() => reportOf(seen)?.gpus?.count === 2);
    expect(reportOf(seen)?.gpus).toMatchObject({ name: 'NVIDIA H200', lost: 0, temperatureC: 55 });
    expect(await get(seen, '/metrics')).toMatch(
      /gpu_temperature_celsius\{[^}]*index="1"[^}]*\} 55/,
    );

    await writeFile(answer, rows([FINE, GONE]));
    await phase(seen, 'degraded');
    expect(reportOf(seen)).toMatchObject({ degradedFor: 'host', gpus: { count: 1, lost: 1 } });
    const degraded = await get(seen, '/metrics');
    expect(degraded).toMatch(/replica_degraded\{[^}]*reason="host"[^}]*\} 1/);
    expect(degraded).toMatch(/replica_gpus\{[^}]*state="lost"[^}]*\} 1/);
    // Good probes alone do not bring it back.
    await until(() => (reportOf(seen)?.probe?.consecutiveOk ?? 0) > AGENT_DEFAULTS.probeRecoveries);
    expect(reportOf(seen)?.phase).toBe('degraded');

    await writeFile(answer, rows([FINE, FINE]));
    await phase(seen, 'ready');
    // A tool that fails from now on is no news of the GPUs.
    await onPath('nvidia-smi', 'echo "NVIDIA-SMI has failed" ; exit 9');
    await until(async () => (await runSmi(['-L'])).exitCode === 9);
    expect(reportOf(seen)).toMatchObject({ phase: 'ready', gpus: { count: 2, lost: 0 } });
  });
});

describe('nvidia-smi itself', () => {
  test('has no exit code where the system starts no process', async () => {
    await onPath('nvidia-smi', 'echo never');
    // An argument longer than any may be: thrown by Node, as lack of memory is, where most failures are told.
    const { exitCode, stdout } = await runSmi(['x'.repeat(256 * 1024)]);
    expect([exitCode, stdout]).toEqual([null, '']);
  });

  test('is run from the path, with what it printed and how it ended', async () => {
    await onPath('nvidia-smi', 'echo "$1"; echo trouble >&2; exit 6');
    const output = await runSmi(['--query-gpu=index']);
    expect(output).toEqual({ exitCode: 6, stdout: '--query-gpu=index\n', stderr: 'trouble\n' });
  });

  test('that is not there, or cannot be run, has no exit code', async () => {
    process.env['PATH'] = folder;
    expect(await runSmi(['-L'])).toMatchObject({ exitCode: null, missing: true });
    await writeFile(join(folder, 'nvidia-smi'), 'no program');
    expect(await runSmi(['-L'])).toMatchObject({ exitCode: null });
  });
});
