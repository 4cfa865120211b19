// `spillway gameday --demo`: plays the story of the demo by itself, says what was expected and what happened, and ends with 1
// where the two differ. With `--at` one scene against a demo that runs already.

import { Command, Option } from 'commander';
import type { RoleRuntime } from '../../shared/runtime/role.ts';
import { loadOrExplain } from '../cli/configuration.ts';
import { setOption, setOverlays } from '../cli/options.ts';
import { processLog, processRuntime } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';
import { Stage } from '../demo/stage.ts';
import type { Fleet, Scene } from '../gameday/scene.ts';
import { SCENES } from '../gameday/scenes.ts';

/** The whole story, start and end included, ms. */
const LIMIT_MS = 240_000;

const NAMES = SCENES.map(({ name }) => name);

const EXAMPLES = `
Scenes: ${NAMES.join(', ')}.

Examples:
  $ spillway gameday --demo
  $ spillway gameday --demo --scene residency
  $ spillway gameday --at http://127.0.0.1:8080 --scene hot
  $ spillway gameday --demo --scene hot --set global.routing.spillCeilingRatio=0   it must differ`;

interface Flags {
  readonly demo: boolean;
  readonly at?: string;
  readonly scene?: string;
  readonly pid?: string;
  readonly set?: readonly string[];
}

export function gamedayCommand(): Command {
  return new Command('gameday')
    .description('play the story of the demo, and check what happens')
    .addOption(new Option('--demo', 'in a demo of its own').default(false))
    .addOption(new Option('--at <url>', 'against a demo that runs: where its clients connect'))
    .addOption(new Option('--scene <name>', 'one scene alone').choices(NAMES))
    .addOption(new Option('--pid <pid>', 'with --at: the process of the region that is killed'))
    .addOption(setOption())
    .addHelpText('after', EXAMPLES)
    .action(async (flags: Flags) => {
      if (flags.demo === (flags.at !== undefined)) throw new UsageError('give --demo or --at');
      const scenes = SCENES.filter(({ name }) => name === (flags.scene ?? name));
      process.exit((await run(flags, scenes)) ? 0 : 1);
    });
}

async function run({ at, pid, set = [] }: Flags, scenes: readonly Scene[]): Promise<boolean> {
  const quiet = { path: ['log', 'level'], value: 'error', source: 'gameday' };
  const runtime = processRuntime(processLog(loadOrExplain(null, [quiet]).log));
  const startMs = runtime.clock.nowMs();
  if (at !== undefined) return play(scenes, running(at, pid ?? null), { runtime, startMs });
  const overlays = [quiet, ...setOverlays(set)];
  const options = { port: 0, replicas: 2, overlays, say: console.log };
  const stage = new Stage(options, runtime);
  try {
    console.log('three regions are loading …');
    await stage.start();
    return await play(scenes, staged(stage), { runtime, startMs });
  } finally {
    await stage.close();
  }
}

function staged(stage: Stage): Fleet {
  return {
    url: stage.url,
    regionUrl: (region) => stage.region(region).url,
    kill: (region) => stage.region(region).kill(),
  };
}

/** A demo of another process. */
function running(url: string, pid: string | null): Fleet {
  return {
    url: url.replace(/\/$/, ''),
    regionUrl: () => null,
    kill: pid === null ? null : () => process.kill(Number(pid), 'SIGKILL'),
  };
}

/** Whether all was as expected, and in time. */
async function play(
  scenes: readonly Scene[],
  fleet: Fleet,
  { runtime, startMs }: { readonly runtime: RoleRuntime; readonly startMs: number },
): Promise<boolean> {
  const { clock, timers, random } = runtime;
  let differs = 0;
  for (const scene of scenes) {
    console.log(`\n${scene.title}`);
    await scene.play({
      ...{ fleet, clock, timers, random },
      does: (text) => console.log(`  ${text}`),
      expects: (expected, happened, held) => {
        if (!held) differs += 1;
        console.log(`    ${held ? 'ok     ' : 'DIFFERS'}  expected: ${expected}`);
        console.log(`             happened: ${happened}`);
      },
    });
  }
  const tookMs = clock.nowMs() - startMs;
  const late = tookMs > LIMIT_MS;
  const outcome = differs === 0 ? 'all as expected' : `${differs} of it not as expected`;
  console.log(`\n${outcome}, in ${Math.round(tookMs / 1_000)} s${late ? ': too long' : ''}`);
  return differs === 0 && !late;
}
