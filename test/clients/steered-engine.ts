// What stands in front of a simulated engine and lets a test choose its answers: a prompt that bears the tag of a script is
// answered by the script, everything else by the engine. The agent beside it finds a real engine's pages.

import { request as call, type IncomingMessage, type ServerResponse } from 'node:http';
import {
  startScriptedEngine,
  type Received,
  type Script,
  type ScriptedEngine,
} from '../e2e/scripted-engine.ts';

/** Scripts by the tag that prompts bear. */
export type Scripts = ReadonlyMap<string, Script>;

const TAG = /script-\d+;/;

export function startSteeredEngine(engineUrl: string, scripts: Scripts): Promise<ScriptedEngine> {
  return startScriptedEngine((received, response) => {
    const tag = TAG.exec(received.body.toString('utf8'))?.[0];
    const script = tag === undefined ? undefined : scripts.get(tag);
    if (script === undefined) forward(engineUrl, received, response);
    else return script(received, response);
  });
}

function forward(engineUrl: string, received: Received, response: ServerResponse): void {
  const url = new URL(received.path, engineUrl);
  const { method } = received;
  const headers = { ...received.headers, host: url.host };
  const pass = (answer: IncomingMessage): void => {
    response.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(response);
    answer.on('error', () => response.destroy());
  };
  const onward = call(url, { method, headers }, pass);
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  onward.end(received.body);
}
