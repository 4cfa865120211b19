// The engine of the proxy benchmark: it answers at once, then paces its chunks, and costs as little as it can (whole answers and
// chunks with their framing are made once; one write each). Each port stands for one replica with figures of its own. Its
// chunks are as long as vLLM's; the head leaves with the first one.
//
// A request's `metadata` says how it is answered: {"chunks", "gapMs"} a stream, {"holdMs"} how long it stays open behind
// its chunks.

import { createServer, type Server, type Socket } from 'node:net';
import {
  EngineCounts,
  MODEL,
  plainAnswer,
  renderAnswer,
  tokensOf,
  type PlainAnswer,
} from './engine-answers.ts';
import { RequestReader, type ReplicaRequest } from './request-reader.ts';

interface Wanted {
  readonly stream: boolean;
  readonly usage: boolean;
  readonly promptTokens: number;
  readonly chunks: number;
  readonly gapMs: number;
  readonly holdMs: number;
}

const ID = 'chatcmpl-0123456789abcdef0123456789abcdef';
const HEAD = `{"id":"${ID}","object":"chat.completion.chunk","created":1700000000,"model":"${MODEL}","choices":`;
const CHUNK = `data: ${HEAD}[{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}]}\n\n`;
const LAST = `data: ${HEAD}[{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}]}\n\n`;
const DONE = 'data: [DONE]\n\n';
const CHOICE = `{"index":0,"message":{"role":"assistant","content":" token token"},"logprobs":null,"finish_reason":"stop"}`;
const ANSWER = `{"id":"${ID}","object":"chat.completion","created":1700000000,"model":"${MODEL}","choices":[${CHOICE}],"usage":`;
/** Tokens of a JSON answer. */
const ANSWER_TOKENS = 2;

const COMMON_HEAD = 'date: Tue, 14 Nov 2023 22:13:20 GMT\r\nserver: uvicorn\r\n';
const STREAM_HEAD = `HTTP/1.1 200 OK\r\n${COMMON_HEAD}content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n`;
const FRAME = Buffer.from(framed(CHUNK));
const FIRST_FRAME = Buffer.from(STREAM_HEAD + framed(CHUNK));
const END_OF_BODY = '0\r\n\r\n';

/** Of a prompt of 100 KB only the ends are looked at: what a replica is told stands there. */
const END_CHARS = 400;
const STREAM = /"stream":\s*true/;
const USAGE = /"include_usage":\s*true/;
const NUMBERS = {
  chunks: /"chunks":"(\d+)"/,
  gapMs: /"gapMs":"(\d+)"/,
  holdMs: /"holdMs":"(\d+)"/,
};

const REASONS = {
  200: 'OK',
  400: 'Bad Request',
  404: 'Not Found',
  411: 'Length Required',
  431: 'Head Too Large',
};

/** Resolves when it listens. */
export function startReplica(port: number): Promise<Server> {
  const counts = new EngineCounts();
  const server = createServer({ noDelay: true }, (socket) => serve(socket, counts));
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host: '127.0.0.1', port, backlog: 4_096 }, () => resolve(server));
  });
}

function serve(socket: Socket, counts: EngineCounts): void {
  const reader = new RequestReader();
  const open = new Generation(socket, counts);
  socket.on('data', (piece: Buffer) => {
    const refused = reader.take(piece, (request) => answer(request, open));
    if (refused !== null) socket.end(plain(refused, { type: 'text/plain', text: '' }));
  });
  socket.on('error', () => socket.destroy());
  socket.on('close', () => open.cut());
}

function answer({ method, path, body }: ReplicaRequest, open: Generation): void {
  const { socket, counts } = open;
  if (method === 'POST' && !path.endsWith('/render')) return open.begin(wantedOf(body));
  const said = method === 'POST' ? renderAnswer(body) : plainAnswer(path, counts);
  socket.write(said === null ? plain(404, { type: 'text/plain', text: '' }) : plain(200, said));
}

/** What a connection generates: one request at a time, as HTTP/1.1 has it. */
class Generation {
  readonly socket: Socket;
  readonly counts: EngineCounts;
  #wanted: Wanted | null = null;
  #sent = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(socket: Socket, counts: EngineCounts) {
    this.socket = socket;
    this.counts = counts;
  }

  begin(wanted: Wanted): void {
    const { counts } = this;
    this.#wanted = wanted;
    this.#sent = 0;
    counts.running += 1;
    counts.heldTokens += wanted.promptTokens;
    counts.promptTokens += wanted.promptTokens;
    counts.firstTokens += 1;
    if (wanted.stream) this.#next(wanted);
    else this.#answer(wanted);
  }

  cut(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#ended();
  }

  #answer(wanted: Wanted): void {
    this.counts.generatedTokens += ANSWER_TOKENS;
    const text = `${ANSWER}${usageOf(wanted, ANSWER_TOKENS)}}`;
    this.#ended();
    this.socket.write(plain(200, { type: 'application/json', text }));
  }

  #next(wanted: Wanted): void {
    this.socket.write(this.#sent === 0 ? FIRST_FRAME : FRAME);
    this.#sent += 1;
    this.counts.generatedTokens += 1;
    if (this.#sent < wanted.chunks) {
      this.#timer = setTimeout(() => this.#next(wanted), wanted.gapMs);
    } else if (wanted.holdMs > 0) {
      this.#timer = setTimeout(() => this.#end(wanted), wanted.holdMs);
    } else {
      this.#end(wanted);
    }
  }

  #end(wanted: Wanted): void {
    const usage = wanted.usage
      ? `data: ${HEAD}[],"usage":${usageOf(wanted, wanted.chunks)}}\n\n`
      : '';
    this.#ended();
    this.socket.write(framed(LAST + usage + DONE) + END_OF_BODY, 'latin1');
  }

  #ended(): void {
    if (this.#wanted === null) return;
    this.counts.running -= 1;
    this.counts.heldTokens -= this.#wanted.promptTokens;
    this.#wanted = null;
    this.#timer = null;
  }
}

function wantedOf(body: Buffer): Wanted {
  const ends =
    body.toString('latin1', 0, END_CHARS) +
    body.toString('latin1', Math.max(0, body.length - END_CHARS));
  const number = (name: keyof typeof NUMBERS, otherwise: number): number =>
    Number(NUMBERS[name].exec(ends)?.[1] ?? otherwise);
  return {
    stream: STREAM.test(ends),
    usage: USAGE.test(ends),
    promptTokens: tokensOf(body.length),
    chunks: number('chunks', 4),
    gapMs: number('gapMs', 0),
    holdMs: number('holdMs', 0),
  };
}

function usageOf({ promptTokens }: Wanted, tokens: number): string {
  const total = promptTokens + tokens;
  return `{"prompt_tokens":${promptTokens},"total_tokens":${total},"completion_tokens":${tokens}}`;
}

function plain(status: keyof typeof REASONS, { type, text }: PlainAnswer): string {
  const length = Buffer.byteLength(text);
  return `HTTP/1.1 ${status} ${REASONS[status]}\r\n${COMMON_HEAD}content-type: ${type}\r\ncontent-length: ${length}\r\n\r\n${text}`;
}

/** A chunk of HTTP/1.1; ASCII. */
function framed(text: string): string {
  return `${text.length.toString(16)}\r\n${text}\r\n`;
}
