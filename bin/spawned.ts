// For tests: a `spillway` process whose output can be waited for, and that is always ended.

import { spawn, type ChildProcess } from 'node:child_process';
import { join } from 'node:path';

const SPILLWAY = join(import.meta.dirname, 'spillway');

export class Spawned {
  readonly process: ChildProcess;
  /** Resolves with the exit code; null after a signal. */
  readonly exited: Promise<number | null>;
  #output = '';
  #waiting: { pattern: RegExp; found: (match: RegExpExecArray) => void }[] = [];

  constructor(words: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.process = spawn(SPILLWAY, words, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...kept(), ...env },
    });
    this.process.stdout?.on('data', (chunk) => this.#take(String(chunk)));
    this.process.stderr?.on('data', (chunk) => this.#take(String(chunk)));
    this.exited = new Promise((resolve) => this.process.once('exit', (code) => resolve(code)));
  }

  get output(): string {
    return this.#output;
  }

  /** The first match in everything that was printed, once it is; rejects when the process ends first. */
  printed(pattern: RegExp): Promise<RegExpExecArray> {
    const match = pattern.exec(this.#output);
    if (match !== null) return Promise.resolve(match);
    const early = this.exited.then((code) => {
      throw new Error(
        `ended with ${code ?? 'a signal'} before ${String(pattern)}:\n${this.#output}`,
      );
    });
    const found = new Promise<RegExpExecArray>((resolve) => {
      this.#waiting.push({ pattern, found: resolve });
    });
    return Promise.race([found, early]);
  }

  async kill(): Promise<void> {
    if (this.process.exitCode === null) this.process.kill('SIGKILL');
    await this.exited;
  }

  #take(text: string): void {
    this.#output += text;
    this.#waiting = this.#waiting.filter(({ pattern, found }) => {
      const match = pattern.exec(this.#output);
      if (match !== null) found(match);
      return match === null;
    });
  }
}

/** Of the environment: nothing that changes what a process does. */
function kept(): Record<string, string> {
  const names = ['PATH', 'NODE_COMPILE_CACHE'];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
