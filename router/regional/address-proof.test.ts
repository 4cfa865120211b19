import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import type { AgentId, PoolId, ReplicaId } from '../../shared/model/ids.ts';
import type { Hello } from '../../shared/protocol/messages.ts';
import { isNonceFor, replicaAt } from '../../shared/runtime/address-proof.ts';
import { proofOf, proveAddresses } from './address-proof.ts';

const servers: ReturnType<typeof createServer>[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** A listener that answers nonces with `key`, those of `agentId` alone where it has one; the port. */
async function prover(key: string, status = 200, agentId: string | null = null): Promise<number> {
  const server = createServer((request, response) => {
    const nonce = new URL(request.url ?? '', 'http://x').searchParams.get('nonce') ?? '';
    const other = agentId !== null && !isNonceFor(agentId, nonce);
    response.writeHead(other ? 403 : status).end(proofOf(key, nonce));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

function nameOf(url: string): ReplicaId {
  return URL.canParse(url) ? replicaAt(new URL(url)) : ('r' as ReplicaId);
}

function hello(advertiseUrl: string, proofPort: number | null): Hello {
  return {
    kind: 'hello',
    protocol: [1, 1],
    features: [],
    agentId: 'agent-1' as AgentId,
    software: 'test',
    pool: 'p' as PoolId,
    engines: [{ replica: nameOf(advertiseUrl), advertiseUrl, ranks: 1 }],
    proofPort,
    wallMs: 0,
  };
}

const RULES = { engineCidrs: [], addressProof: true, secrets: ['secret-1', 'secret-2'] };
const URL_HERE = 'http://127.0.0.1:8000';

describe('an advertised address', () => {
  test('is taken when something there knows one of the secrets', async () => {
    const port = await prover('secret-2');
    expect(await proveAddresses(hello(URL_HERE, port), RULES)).toEqual({ ok: true });
  });

  test("is taken by the agent's id where links need no secret", async () => {
    const port = await prover('agent-1');
    expect(await proveAddresses(hello(URL_HERE, port), { ...RULES, secrets: [] })).toEqual({
      ok: true,
    });
  });

  test('by name is checked by every address of the name', async () => {
    const port = await prover('secret-1');
    const rules = { ...RULES, engineCidrs: ['127.0.0.0/8', '::1'] };
    const result = await proveAddresses(hello('http://localhost:8000', port), rules);
    expect(result).toEqual({ ok: true });
  });

  test.each<[string, string, object, string]>([
    ['outside loopback, by default', 'http://10.1.2.3:8000', {}, 'outside'],
    ['outside the networks', 'http://10.1.2.3:8000', { engineCidrs: ['10.2.0.0/16'] }, 'outside'],
    ['loopback, where networks are named', URL_HERE, { engineCidrs: ['10.2.0.0/16'] }, 'outside'],
    ['with a path', `${URL_HERE}/v1`, {}, 'base URL'],
    ['with credentials', 'http://a:b@127.0.0.1:8000', {}, 'base URL'],
    ['of another scheme', 'ftp://127.0.0.1', {}, 'base URL'],
    ['that is no URL', '127.0.0.1', {}, 'base URL'],
    ['of an unknown name', 'http://name.invalid:8000', {}, 'resolve'],
  ])('%s is refused', async (_name, url, changes, detail) => {
    const port = await prover('secret-1');
    const result = await proveAddresses(hello(url, port), { ...RULES, ...changes });
    expect(result).toMatchObject({ ok: false, detail: expect.stringContaining(detail) as string });
  });

  test('without the proof is refused: wrong key, error, nobody there, no listener', async () => {
    const wrong = await prover('other');
    const failing = await prover('secret-1', 500);
    const gone = await prover('secret-1');
    servers.at(-1)?.close();
    for (const port of [wrong, failing, gone, null]) {
      const result = await proveAddresses(hello(URL_HERE, port), RULES);
      expect(result.ok).toBe(false);
    }
  });

  test("is not proven by another agent's answer", async () => {
    const own = await prover('secret-1', 200, 'agent_1');
    const others = await prover('secret-1', 200, 'agent_2');
    const of = (port: number) => ({ ...hello(URL_HERE, port), agentId: 'agent_1' as AgentId });
    expect(await proveAddresses(of(own), RULES)).toEqual({ ok: true });
    expect(await proveAddresses(of(others), RULES)).toMatchObject({ ok: false });
  });

  test("is its replica's name: nobody speaks for another engine", async () => {
    const port = await prover('secret-1');
    const here = hello(URL_HERE, port);
    const engines = [{ ...here.engines[0]!, replica: '127.0.0.1:9000' as ReplicaId }];
    const result = await proveAddresses({ ...here, engines }, RULES);
    expect(result).toMatchObject({ detail: 'its replica has another name than its address' });
  });

  test('is one of a few hosts: all of them are one machine', async () => {
    const port = await prover('secret-1');
    const engines = Array.from({ length: 17 }, (_, at) => {
      const advertiseUrl = `http://127.0.0.${at + 1}:80`;
      return { replica: nameOf(advertiseUrl), advertiseUrl, ranks: 1 };
    });
    const result = await proveAddresses({ ...hello(URL_HERE, port), engines }, RULES);
    expect(result).toMatchObject({ detail: 'one of more than 16 hosts of one agent' });
  });

  test('needs only the network where proofs are switched off', async () => {
    const rules = { ...RULES, addressProof: false };
    expect(await proveAddresses(hello(URL_HERE, null), rules)).toEqual({ ok: true });
  });
});
