// Whoever meets a code at night finds it in the runbook: every one that the sources can produce, and no other.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AGENT_LIMITS } from '../../agent/events.ts';
import { METRICS as AGENT, METRICS_PREFIX as AGENT_PREFIX } from '../../agent/metrics.ts';
import {
  METRICS as ROUTER,
  METRICS_PREFIX as ROUTER_PREFIX,
} from '../../router/regional/metrics.ts';
import { METRICS as GLOBAL, METRICS_PREFIX as GLOBAL_PREFIX } from '../../router/global/metrics.ts';
import { ABORT_STAGES, OUTCOMES } from '../../router/gateway/request-log.ts';
import type { AttemptResult, FaultCause } from '../../router/policy/attempt-result.ts';
import { fleetSchema } from '../../shared/config/schema.ts';
import { ERRORS } from '../../shared/errors.ts';
import { DECISION_REASONS, FILTER_REASONS, SHED_REASONS } from '../../shared/model/decision.ts';
import { LIMITS } from '../../shared/model/limit.ts';
import { DEGRADED_REASONS } from '../../shared/model/phase.ts';
import { CLOSE_CODES } from '../../shared/protocol/messages.ts';
import type { LinkEnd } from '../../shared/runtime/link-socket.ts';
import type { TlsFailure } from '../../shared/runtime/tls-peer.ts';
import { commandNamed } from './command-line.ts';
import { codesOf, logCodes } from './log-codes.ts';
import { anchorsOf, codesUnder, rowsUnder, runbookAnchors, runbookText } from './runbook.ts';

const CAUSES: Readonly<
  Record<Exclude<AttemptResult['kind'], 'complete' | 'serverFault'> | FaultCause, true>
> = {
  connectFailed: true,
  staleConnection: true,
  backPressure: true,
  clientGone: true,
  clientError: true,
  status: true,
  reset: true,
  error_event: true,
  abort: true,
  truncated: true,
  first_token_timeout: true,
  no_longer_allowed: true,
  region_silent: true,
  stall: true,
  bad_answer: true,
};
const ENDS: Readonly<
  Record<Exclude<LinkEnd, keyof typeof CLOSE_CODES> | TlsFailure['reason'], true>
> = {
  certificate_untrusted: true,
  certificate_name: true,
  certificate_expired: true,
  no_tls: true,
  lost: true,
  silent: true,
  too_large: true,
  going_away: true,
};

const sorted = (words: Iterable<string>): string[] => [...new Set(words)].toSorted();

describe('log lines', () => {
  it('are read from calls in every form that the sources use', () => {
    const source = `
      log.warn({ a: f(1, 'x') }, 'one');
      this.context.log('error', 'two', { b: "it's" });
      state.log('warn', holds ? 'three' : 'four', {});
      state.log('info', 'quiet', {});
      log.info('quiet too');
      this.log(level, 'five', {});
      const words = late === 'soon' ? 'six' : 'seven';
      log.error({ err }, words);
      this.say('warn', 'eight', {});
      write({ msg: 'nine' });
      log.warn({}, computed());
      Math.log(2);`;
    const { codes, unreadable } = codesOf(source, 'f.ts');
    const expected = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine'];
    expect(sorted(codes.map(({ code }) => code))).toEqual(sorted(expected));
    expect(unreadable).toEqual(['f.ts: {}, computed()']);
  });

  it('have codes that can be looked up, but where a method passes on what its callers say', () => {
    const shells = ['global', 'regional'].map((tier) => `router/${tier}/shell.ts`);
    const others = ['agent/kv-events.ts', 'agent/start.ts', 'shared/runtime/link-address.ts'];
    const files = logCodes().unreadable.map((call) => call.split(':')[0] ?? '');
    expect(sorted(files)).toEqual(sorted([...shells, ...others]));
    expect(files).toHaveLength(5);
  });

  it('are all in the runbook, and nothing else', () => {
    const listed = codesUnder('Of agents', 'Of routers', 'Of both');
    expect(sorted(listed)).toEqual(sorted(logCodes().codes.map(({ code }) => code)));
    expect(listed).toHaveLength(new Set(listed).size);
  });
});

describe('closed lists', () => {
  it.each([
    ['decisions', ['Send', 'Queue', 'Shed', 'Refuse'], DECISION_REASONS],
    ['sheds', ['Shed'], SHED_REASONS],
    ['filters', ['Left out'], FILTER_REASONS],
    ['errors', ['Errors that clients get'], Object.keys(ERRORS)],
    ['outcomes', ['How requests end'], [...OUTCOMES, ...ABORT_STAGES]],
    ['causes', ['How attempts end'], Object.keys(CAUSES)],
    ['limits', ['Limits that were reached'], [...LIMITS, ...AGENT_LIMITS]],
    ['link ends', ['Why links end'], [...Object.keys(CLOSE_CODES), ...Object.keys(ENDS)]],
    ['degraded', ['Why a replica is degraded'], DEGRADED_REASONS],
  ] as const)('%s are all in the runbook, and nothing else', (_, headings, codes) => {
    expect(codesUnder(...headings).toSorted()).toEqual(codes.toSorted());
  });

  it('errors have their own status, and say rightly whether a retry makes sense', () => {
    for (const { code, cells } of rowsUnder('Errors that clients get')) {
      const { status, retryable } = ERRORS[code as keyof typeof ERRORS];
      expect([code, ...cells.slice(0, 2)]).toEqual([
        code,
        String(status),
        retryable ? 'yes' : 'no',
      ]);
    }
  });
});

describe.each(['runbook.md', 'deploy.md'])('docs/%s', (file) => {
  const text = readFileSync(join(import.meta.dirname, '../../docs', file), 'utf8');

  it('names metrics that exist', () => {
    const known = [
      ...ROUTER.map(({ name }) => ROUTER_PREFIX + name),
      ...GLOBAL.map(({ name }) => GLOBAL_PREFIX + name),
      ...AGENT.map(({ name }) => AGENT_PREFIX + name),
    ];
    const named = Array.from(text.matchAll(/`(spillway_\w+)/g), ([, name = '']) => name);
    expect(named.filter((name) => !known.includes(name))).toEqual([]);
    expect(named.length).toBeGreaterThan(0);
  });

  it('names settings that exist', () => {
    const { router } = fleetSchema.parse({});
    for (const [, path = ''] of text.matchAll(/`router\.((?:routing|limits|shutdown)\.\w+)`/g)) {
      const [group = '', field = ''] = path.split('.');
      expect(Object.keys(router[group as 'routing'])).toContain(field);
    }
  });

  it('names environment variables that a command reads', () => {
    const known = ['router', 'agent'].flatMap((name) =>
      commandNamed(name).options.flatMap((option) => option.envVar ?? []),
    );
    const named = Array.from(text.matchAll(/SPILLWAY_[A-Z_]+/g), ([name]) => name);
    const secrets = ['SPILLWAY_LINK_SECRET', 'SPILLWAY_ENGINE_API_KEY'];
    expect(named.filter((name) => ![...secrets, ...known].includes(name))).toEqual([]);
  });

  it('names files of deploy that exist', () => {
    const paths = Array.from(text.matchAll(/\bdeploy\/[\w./@-]*[\w]/g), ([path]) => path);
    expect(paths.length).toBeGreaterThan(0);
    const missing = paths.filter((path) => !existsSync(join(import.meta.dirname, '../..', path)));
    expect(missing).toEqual([]);
  });

  it('links to places that exist', () => {
    for (const [, page = '', anchor = ''] of text.matchAll(/\]\(([\w./-]*)(?:#([\w-]+))?\)/g)) {
      if (page === '') expect(anchorsOf(text)).toContain(anchor);
      else {
        const target = readFileSync(join(import.meta.dirname, '../../docs', page), 'utf8');
        if (anchor !== '') expect(anchorsOf(target)).toContain(anchor);
      }
    }
  });
});

describe('headings', () => {
  it('are told apart', () => {
    expect(runbookAnchors()).toHaveLength(new Set(runbookAnchors()).size);
    expect(runbookText.startsWith('# Runbook\n')).toBe(true);
  });
});
