// The official Python library in a process of its own, in a virtual environment that is kept beside the engine's.

import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { installFolder } from './requirements.ts';

export const PYTHON_OPENAI = '3.57.0';

export interface PythonJob {
  readonly way: 'stream' | 'whole' | 'parse' | 'tools' | 'embed' | 'models';
  readonly url: string;
  readonly key: string;
  readonly model: string;
  readonly prompt: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly streamed?: boolean;
  /** Seconds. */
  readonly timeout?: number;
  readonly max_retries?: number;
  /** Closes the stream behind so many pieces. */
  readonly leave_after?: number;
}

/** What an application would have seen. */
export interface PythonSight {
  readonly pieces: readonly string[];
  readonly arguments: string;
  readonly finish: string | null;
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number | null } | null;
  } | null;
  readonly error: {
    readonly kind: string;
    readonly status: number | null;
    readonly code: unknown;
    readonly request_id: string | null;
    readonly message: string;
  } | null;
  readonly parsed?: unknown;
  readonly embedding?: readonly number[];
  readonly models?: readonly string[];
  readonly seconds: number;
}

/** Path of the interpreter that has the library; null where it cannot be had, which is said. */
export function preparePython(say: (line: string) => void): string | null {
  const folder = join(installFolder(), '..', `python-openai-${PYTHON_OPENAI}`);
  const python = join(folder, 'bin', 'python');
  const complete = join(folder, '.complete');
  if (existsSync(complete)) return python;
  say(`installing openai ${PYTHON_OPENAI} for Python into ${folder}`);
  const wanted = `openai==${PYTHON_OPENAI}`;
  const steps: [string, string[]][] = [
    ['python3', ['-m', 'venv', folder]],
    [python, ['-m', 'pip', 'install', '--quiet', wanted]],
  ];
  for (const [program, args] of steps) {
    const done = spawnSync(program, args, { stdio: ['ignore', process.stderr, process.stderr] });
    if (done.status !== 0) return null;
  }
  writeFileSync(complete, '');
  return python;
}

export class PythonClient {
  readonly #child: ChildProcess;
  readonly #waiting: PromiseWithResolvers<PythonSight>[] = [];

  constructor(python: string) {
    const script = join(import.meta.dirname, 'python-client.py');
    this.#child = spawn(python, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
    if (this.#child.stdout === null) throw new Error('no output');
    createInterface({ input: this.#child.stdout }).on('line', (line) =>
      this.#waiting.shift()?.resolve(JSON.parse(line) as PythonSight),
    );
    this.#child.once('exit', (code) => {
      for (const { reject } of this.#waiting.splice(0)) reject(new Error(`Python ended: ${code}`));
    });
  }

  /** One after the other. */
  ask(job: PythonJob): Promise<PythonSight> {
    const sight = Promise.withResolvers<PythonSight>();
    this.#waiting.push(sight);
    this.#child.stdin?.write(`${JSON.stringify(job)}\n`);
    return sight.promise;
  }

  close(): void {
    this.#child.kill('SIGKILL');
  }
}
