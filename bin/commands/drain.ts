// `spillway drain URL`: takes the engines of an agent, or a router, out of use, and with `--undo` back into it.
//
// With `--wait` it ends when what was marked may be stopped: 0 then, 1 when the time is over first.

import { Command, Option } from 'commander';
import { Agent, request, type Dispatcher } from 'undici';
import { errorCode } from '../../shared/lib/error-code.ts';
import { systemClock } from '../../shared/runtime/clock.ts';
import { readTls } from '../../shared/runtime/tls-files.ts';
import { pause } from '../cli/process.ts';
import { UsageError } from '../cli/usage-error.ts';

const EXAMPLES = `
URL is the listener of an agent (agent.listen, port 8090) or the admin listener of a router (port 8082). From
another machine the secret of the links is needed (SPILLWAY_LINK_SECRET).

An agent's engines get no new requests and finish what they have. A router is not ready any more, so that its
balancer leaves it, and serves whoever still comes. The mark lasts until it is undone or the process ends.

Examples:
  $ spillway drain http://127.0.0.1:8090 --wait 900 && systemctl restart vllm@gpu0
  $ spillway drain http://127.0.0.1:8090 --undo
  $ spillway drain http://127.0.0.1:8090 --replica 10.0.1.7:8000
  $ spillway drain http://127.0.0.1:8082`;

const POLL_MS = 250;
const ANSWER_MS = 10_000;
const ANSWER_CHARS_MAX = 1_048_576;

interface Flags {
  readonly undo?: boolean;
  readonly replica?: string;
  readonly wait?: number;
  readonly ca?: string;
}

/** What agents and routers both answer. */
interface State {
  readonly draining: boolean;
  readonly drained: boolean;
  readonly open: number;
}

export function drainCommand(): Command {
  return new Command('drain')
    .description('take an engine or a router out of use, or back into it')
    .argument('<url>', 'listener of an agent, or admin listener of a router')
    .addOption(new Option('--undo', 'back into use'))
    .addOption(new Option('--replica <host:port>', 'one engine of the agent (default: all)'))
    .addOption(
      new Option('--wait <seconds>', 'until it may be stopped, so long at most')
        .argParser(seconds)
        .conflicts('undo'),
    )
    .addOption(new Option('--ca <file>', 'CAs that vouch for an https listener (PEM)'))
    .addHelpText('after', EXAMPLES)
    .action(run);
}

function seconds(text: string): number {
  const value = Number(text);
  if (text === '' || !Number.isFinite(value) || value < 0) {
    throw new UsageError('--wait: seconds, 0 or more');
  }
  return value;
}

async function run(url: string, flags: Flags): Promise<void> {
  const asks = questions(url, flags);
  try {
    const method = flags.undo === true ? 'DELETE' : 'POST';
    const state = await asks.ask(method);
    const reached = flags.wait === undefined ? state : await wait(asks, flags.wait);
    console.log(`${url}: ${words(reached)}`);
    if (flags.wait !== undefined && !reached.drained) process.exitCode = 1;
  } finally {
    await asks.close();
  }
}

function words({ draining, drained, open }: State): string {
  if (!draining) return 'in use';
  return drained ? 'drained: it may be stopped' : `draining, ${open} requests open`;
}

interface Questions {
  readonly ask: (method: 'GET' | 'POST' | 'DELETE') => Promise<State>;
  readonly close: () => Promise<void>;
}

function questions(url: string, { replica, ca }: Flags): Questions {
  const target = targetOf(url);
  if (replica !== undefined) target.searchParams.set('replica', replica);
  const dispatcher = new Agent({
    ...(ca === undefined ? {} : { connect: { ca: authorities(ca) } }),
    headersTimeout: ANSWER_MS,
    bodyTimeout: ANSWER_MS,
  });
  const secret = process.env['SPILLWAY_LINK_SECRET']?.split(',', 1)[0] ?? '';
  const headers = secret === '' ? {} : { authorization: `Bearer ${secret}` };
  return {
    ask: (method) => ask(target, { method, headers, dispatcher }),
    close: () => dispatcher.close(),
  };
}

function authorities(file: string): string {
  const reading = readTls({ cert: null, key: null, ca: file }, systemClock.wallMs());
  if (!reading.ok) throw new UsageError(`--ca: ${reading.error}`);
  return reading.pems.ca ?? '';
}

function targetOf(url: string): URL {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !/^https?:$/.test(parsed.protocol)) {
    throw new UsageError(`${url}: no http:// or https:// URL`);
  }
  return new URL('/v1/drain', parsed);
}

async function ask(
  target: URL,
  options: {
    readonly method: 'GET' | 'POST' | 'DELETE';
    readonly headers: Record<string, string>;
    readonly dispatcher: Dispatcher;
  },
): Promise<State> {
  const { status, text } = await told(target, options).catch((cause: unknown) => {
    throw new UsageError(`${target.origin}: ${reason(cause)}`, { cause });
  });
  if (status !== 200) throw new UsageError(`${target.origin}: ${status} ${sentenceOf(text)}`);
  const state = parsed(text) as Partial<State> | null;
  if (typeof state?.draining !== 'boolean') {
    throw new UsageError(`${target.origin}: neither an agent nor a router answers there`);
  }
  return { draining: state.draining, drained: state.drained === true, open: state.open ?? 0 };
}

/** The answer, of which no more is read than an agent or a router says. */
async function told(
  target: URL,
  options: Parameters<typeof request>[1],
): Promise<{ readonly status: number; readonly text: string }> {
  const { statusCode: status, body } = await request(target, options);
  let text = '';
  for await (const piece of body.setEncoding('utf8')) {
    text += String(piece);
    if (text.length > ANSWER_CHARS_MAX) break;
  }
  return { status, text };
}

/** The system's codes say enough; of certificates and time-outs the words say more. */
function reason(cause: unknown): string {
  const code = errorCode(cause);
  if (code === 'ECONNREFUSED') return 'nothing listens there';
  if (code !== null && /^E[A-Z]+$/.test(code)) return code;
  return cause instanceof Error ? cause.message : String(cause);
}

/** The sentence of an error, of an agent or a router. */
function sentenceOf(text: string): string {
  const { error } = (parsed(text) ?? {}) as { error?: string | { message?: string } };
  return (typeof error === 'string' ? error : error?.message) ?? '';
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // What is no JSON was said by somebody else.
    return null;
  }
}

/** Polls until it may be stopped or the time is over. */
async function wait(asks: Questions, waitS: number): Promise<State> {
  const polls = Math.ceil((waitS * 1_000) / POLL_MS);
  for (let poll = 0; poll < polls; poll += 1) {
    const state = await asks.ask('GET');
    if (state.drained) return state;
    await pause(POLL_MS);
  }
  return asks.ask('GET');
}
