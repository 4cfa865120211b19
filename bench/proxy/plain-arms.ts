// nginx and HAProxy of the distribution, as one would set them for streams: one worker, kept-alive upstreams, nothing
// buffered, nothing logged.

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../../test/free-ports.ts';
import { nginxConfig } from '../nginx-config.ts';
import { HOST, startProxy, type Arm } from './arms.ts';

export const NGINX: Arm = {
  name: 'nginx',
  missing: () => missingProgram('nginx', 'apt-get install nginx-light'),
  async start({ folder, replicas }) {
    const port = await freePort();
    const config = join(folder, 'nginx.conf');
    writeFileSync(config, nginxConfig({ folder, port, replicas }));
    return startProxy('nginx', ['nginx', '-p', folder, '-c', config], { port, folder });
  },
};

export const HAPROXY: Arm = {
  name: 'haproxy',
  missing: () => missingProgram('haproxy', 'apt-get install haproxy'),
  async start({ folder, replicas }) {
    const port = await freePort();
    const config = join(folder, 'haproxy.cfg');
    writeFileSync(config, haproxyConfig(port, replicas));
    return startProxy('haproxy', ['haproxy', '-db', '-f', config], { port, folder });
  },
};

/** As both print theirs; null where it is not there. */
export function versionOf(program: 'nginx' | 'haproxy'): string | null {
  const { error, stdout, stderr } = spawnSync(program, ['-v'], { encoding: 'utf8' });
  if (error !== undefined) return null;
  return /\d+\.\d+\.\d+/.exec(stdout + stderr)?.[0] ?? null;
}

function missingProgram(program: 'nginx' | 'haproxy', install: string): string | null {
  return versionOf(program) === null ? `no ${program} here (${install})` : null;
}

function haproxyConfig(port: number, replicas: readonly number[]): string {
  return `
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 2s
  timeout client 600s
  timeout server 600s
  option http-keep-alive
  # Else a stream's first chunk waits 200 ms for a second one.
  option http-no-delay
  http-reuse always
frontend clients
  bind ${HOST}:${port}
  default_backend replicas
backend replicas
  balance roundrobin
${replicas.map((each, index) => `  server replica-${index} ${HOST}:${each}`).join('\n')}
`;
}
