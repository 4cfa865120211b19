// Engines that die under a request: before its first token no client may notice, after it every client must.

import type OpenAI from 'openai';
import { seededRandom } from '../../shared/lib/random.ts';
import { askModel, clientFor, type Answer } from './conversations.ts';
import { prose } from './prose.ts';
import { MODEL, type Engine } from './vllm.ts';
import { delay, waitFor } from './wait.ts';

/** About 13k tokens: six seconds of prefill. */
const LONG_PROMPT_BYTES = 44_000;
const STREAM_PROMPT_BYTES = 6_000;
/** Several seconds of tokens. */
const LONG_ANSWER_TOKENS = 1_500;

function longPrompt(seed: number): OpenAI.ChatCompletionMessageParam[] {
  return [{ role: 'user', content: prose(seededRandom(seed), LONG_PROMPT_BYTES) }];
}

/** What the stream that is cut asks. */
export function streamPrompt(): OpenAI.ChatCompletionMessageParam[] {
  return [{ role: 'user', content: prose(seededRandom(73), STREAM_PROMPT_BYTES) }];
}

/** The engine in which a request has begun, as the engines themselves count. */
function engineAtWork(engines: readonly Engine[]): Promise<Engine> {
  return waitFor({ what: 'an engine works on the long prompt', limitMs: 10_000 }, async () => {
    for (const engine of engines) {
      if (((await engine.metric('vllm:num_requests_running')) ?? 0) > 0) return engine;
    }
    return null;
  });
}

export interface PrefillKill {
  readonly victim: Engine;
  readonly answer: Answer;
}

/** Kills the core that prefills a long prompt; resolves with what the client saw. */
export async function killInPrefill(
  routerUrl: string,
  engines: readonly Engine[],
  { streamed, onKill }: { readonly streamed: boolean; readonly onKill: (victim: Engine) => void },
): Promise<PrefillKill> {
  const asked = askModel(clientFor(routerUrl), longPrompt(streamed ? 71 : 72), {
    maxTokens: 24,
    streamed,
    asksUsage: true,
  });
  const victim = await engineAtWork(engines);
  // Far enough in to be sure of the middle; the whole prefill takes about six seconds.
  await delay(1_500);
  onKill(victim);
  victim.killCore();
  return { victim, answer: await asked };
}

export interface StreamKill {
  readonly replica: string;
  /** What the official SDK threw; null when it saw a clean end. */
  readonly error: string | null;
  readonly pieces: number;
  readonly finishReason: string | null;
  /** The last bytes of the body as they came. */
  readonly tail: string;
}

/** Kills the core that writes a long answer; resolves with what the client saw. */
export async function killInStream(
  routerUrl: string,
  victimOf: (replica: string) => Engine,
): Promise<StreamKill> {
  const tails: Promise<string>[] = [];
  const client = clientFor(routerUrl, async (url, init) => {
    const answer = await fetch(url, init);
    if (answer.body === null) return answer;
    const [forSdk, forUs] = answer.body.tee();
    tails.push(lastOf(forUs));
    return new Response(forSdk, { status: answer.status, headers: answer.headers });
  });
  const seen = await readUntilCut(client, victimOf);
  return { ...seen, tail: (await tails[0]) ?? '' };
}

async function readUntilCut(
  client: OpenAI,
  victimOf: (replica: string) => Engine,
): Promise<Omit<StreamKill, 'tail'>> {
  const seen = {
    replica: '',
    error: null as string | null,
    pieces: 0,
    finishReason: null as string | null,
  };
  try {
    const { data, response } = await client.chat.completions
      .create({
        model: MODEL,
        messages: streamPrompt(),
        max_tokens: LONG_ANSWER_TOKENS,
        stream: true,
      })
      .withResponse();
    seen.replica = response.headers.get('x-spillway-replica') ?? '';
    for await (const chunk of data) {
      seen.pieces += 1;
      seen.finishReason ??= chunk.choices[0]?.finish_reason ?? null;
      if (seen.pieces === 20) victimOf(seen.replica).killCore();
    }
  } catch (error) {
    seen.error = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  }
  return seen;
}

async function lastOf(body: ReadableStream<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let tail = '';
  try {
    for await (const chunk of body)
      tail = (tail + decoder.decode(chunk, { stream: true })).slice(-600);
  } catch (error) {
    tail += `[cut: ${error instanceof Error ? error.message : String(error)}]`;
  }
  return tail;
}

/** Starts a long answer, leaves after a few pieces, and waits until the engines are idle again; ms that it took. */
export async function leaveInStream(
  routerUrl: string,
  engines: readonly Engine[],
): Promise<number> {
  const client = clientFor(routerUrl);
  const stream = await client.chat.completions.create({
    model: MODEL,
    messages: [{ role: 'user', content: prose(seededRandom(74), 2_000) }],
    max_tokens: LONG_ANSWER_TOKENS,
    stream: true,
  });
  let pieces = 0;
  for await (const _chunk of stream) {
    pieces += 1;
    if (pieces === 10) break;
  }
  const leftMs = performance.now();
  await waitFor({ what: 'the engines stop working for nobody', limitMs: 5_000 }, async () => {
    for (const engine of engines) {
      if (((await engine.metric('vllm:num_requests_running')) ?? 0) > 0) return null;
    }
    return true;
  });
  return performance.now() - leftMs;
}
