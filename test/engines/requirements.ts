// What a real engine needs of this machine: everything that is missing is said at once, in words a person can act on.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, homedir, totalmem } from 'node:os';
import { join } from 'node:path';

const GIB = 1024 ** 3;
const MEMORY_BYTES = 8e9;
const INSTALL_BYTES = 6e9;
/** Logs and caches of a run once the engine is installed. */
const RUN_BYTES = 0.5e9;

export interface Machine {
  readonly platform: string;
  readonly arch: string;
  readonly cpuFlags: readonly string[];
  readonly cores: number;
  readonly memoryBytes: number;
  readonly diskFreeBytes: number;
  readonly python: readonly [number, number] | null;
  readonly pythonHasVenv: boolean;
  readonly installed: boolean;
  readonly hasTaskset: boolean;
}

/** Where the engine is kept between runs: outside the source tree. */
export function installFolder(): string {
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache');
  return process.env['SPILLWAY_VLLM'] ?? join(cache, 'spillway-engines', 'vllm-0.32.0');
}

export function isInstalled(folder: string): boolean {
  return existsSync(join(folder, '.complete')) && existsSync(join(folder, 'bin', 'vllm'));
}

export function inspectMachine(folder: string): Machine {
  mkdirSync(folder, { recursive: true });
  const disk = statfsSync(folder);
  return {
    platform: process.platform,
    arch: process.arch,
    cpuFlags: cpuFlags(),
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    diskFreeBytes: disk.bavail * disk.bsize,
    python: pythonVersion(),
    pythonHasVenv: runs('python3', ['-c', 'import venv, ensurepip']),
    installed: isInstalled(folder),
    hasTaskset: runs('taskset', ['--version']),
  };
}

/** One line per thing that is missing; empty when the engines can run. */
export function missingFrom(machine: Machine): string[] {
  if (machine.platform !== 'linux' || machine.arch !== 'x64') {
    return [`x86-64 Linux is needed; this is ${machine.platform} on ${machine.arch}`];
  }
  const missing: string[] = [];
  if (!machine.cpuFlags.includes('avx2')) missing.push('a CPU with AVX2 is needed');
  if (machine.cores < 2) missing.push(`2 CPU cores are needed; this machine has ${machine.cores}`);
  if (machine.memoryBytes < MEMORY_BYTES) {
    missing.push(`8 GB of memory are needed; this machine has ${gib(machine.memoryBytes)} GiB`);
  }
  if (!machine.hasTaskset) missing.push('taskset is needed (apt-get install util-linux)');
  const disk = machine.installed ? RUN_BYTES : INSTALL_BYTES;
  if (machine.diskFreeBytes < disk) {
    missing.push(`${gib(disk)} GiB of disk are needed; ${gib(machine.diskFreeBytes)} GiB are free`);
  }
  if (!machine.installed) missing.push(...missingPython(machine));
  return missing;
}

function missingPython(machine: Machine): string[] {
  if (machine.python === null) return ['python3 is needed (apt-get install python3 python3-venv)'];
  const [major, minor] = machine.python;
  if (major < 3 || (major === 3 && minor < 11)) {
    return [`Python 3.11 or newer is needed; python3 is ${major}.${minor}`];
  }
  return machine.pythonHasVenv
    ? []
    : ['the venv module of python3 is needed (apt-get install python3-venv)'];
}

function gib(bytes: number): string {
  return (bytes / GIB).toFixed(1);
}

function cpuFlags(): string[] {
  try {
    const match = /^flags\s*:\s*(.*)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'));
    return match?.[1]?.split(' ') ?? [];
  } catch {
    return [];
  }
}

function pythonVersion(): [number, number] | null {
  try {
    const text = execFileSync('python3', ['--version'], { encoding: 'utf8' });
    const match = /(\d+)\.(\d+)/.exec(text);
    return match === null ? null : [Number(match[1]), Number(match[2])];
  } catch {
    return null;
  }
}

function runs(command: string, args: readonly string[]): boolean {
  try {
    execFileSync(command, args, { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}
