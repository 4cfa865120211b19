import { describe, expect, test } from 'vitest';
import {
  endpointAnswered,
  endpointFailed,
  isNamed,
  RegionEndpoints,
  type Endpoint,
} from './region-endpoints.ts';

const A = new URL('http://a.example:8083');
const B = new URL('http://b.example:8083');
const idle = (): number => 0;
const addressesOf = (endpoints: RegionEndpoints) => endpoints.all.map(({ address }) => address);

function picks(endpoints: RegionEndpoints, count: number, nowMs = 0): string[] {
  return Array.from({ length: count }, () => {
    const { key } = endpoints.pick(nowMs, idle);
    endpoints.turn();
    return key;
  });
}

describe('the endpoints of a region', () => {
  test('are its URLs, and all addresses of a name that has several', () => {
    const endpoints = new RegionEndpoints([A, B]);
    expect(addressesOf(endpoints)).toEqual([null, null]);
    endpoints.resolved([A, B], (url) => (url === A ? ['10.0.0.1', '10.0.0.2'] : ['10.0.0.9']));
    expect(addressesOf(endpoints)).toEqual(['10.0.0.1', '10.0.0.2', null]);
  });

  test('are those of one family: a router that has both is one', () => {
    const endpoints = new RegionEndpoints([A]);
    endpoints.resolved([A], () => ['::1', '10.0.0.1']);
    expect(addressesOf(endpoints)).toEqual([null]);
    endpoints.resolved([A], () => ['fd00::1', 'fd00::2']);
    expect(addressesOf(endpoints)).toEqual(['fd00::1', 'fd00::2']);
  });

  test('are one of a name with one address that several URLs have', () => {
    const other = new URL('http://a.example:9083');
    const endpoints = new RegionEndpoints([A, other]);
    endpoints.resolved([A, other], () => ['10.0.0.1', '10.0.0.1']);
    expect(addressesOf(endpoints)).toEqual([null, null]);
  });

  test('keep what is known of them when the name is looked up again', () => {
    const endpoints = new RegionEndpoints([A]);
    endpoints.resolved([A], () => ['10.0.0.1', '10.0.0.2']);
    endpointFailed(endpoints.all[0] as Endpoint, 0);
    endpoints.resolved([A], () => ['10.0.0.3', '10.0.0.1']);
    expect(endpoints.all.map(({ failures }) => failures)).toEqual([0, 1]);
  });

  test('are looked up where they are names, and no address', () => {
    expect(
      [A, new URL('http://10.0.0.1'), new URL('http://[::1]:1'), new URL('http://localhost')].map(
        isNamed,
      ),
    ).toEqual([...[true, false, false, false]]);
  });
});

describe('the next request of a region', () => {
  test('goes to each of its routers in turn, and to the one with the least under way', () => {
    const endpoints = new RegionEndpoints([A, B]);
    expect(picks(endpoints, 4)).toEqual([A.origin, B.origin, A.origin, B.origin]);
    expect(endpoints.pick(0, ({ origin }) => (origin === A.origin ? 3 : 2)).origin).toBe(B.origin);
  });

  test('goes to none that is down, for longer each time, until it answers', () => {
    const endpoints = new RegionEndpoints([A, B]);
    const [a] = endpoints.all as [Endpoint, Endpoint];
    endpointFailed(a, 0);
    endpointFailed(a, 10);
    expect(new Set(picks(endpoints, 4, 999))).toEqual(new Set([B.origin]));
    expect(picks(endpoints, 4, 1_000)).toContain(A.origin);
    endpointFailed(a, 1_000);
    expect(new Set(picks(endpoints, 4, 2_999))).toEqual(new Set([B.origin]));
    endpointAnswered(a);
    expect(picks(endpoints, 2, 2_999)).toContain(A.origin);
    for (let k = 0; k < 20; k += 1) endpointFailed(a, 1e6 * k);
    expect(a.downUntilMs - 19e6).toBe(30_000);
  });

  test('goes where all are down to the one that is up soonest', () => {
    const endpoints = new RegionEndpoints([A, B]);
    const [a, b] = endpoints.all as [Endpoint, Endpoint];
    endpointFailed(b, 0);
    endpointFailed(a, 500);
    expect(new Set(picks(endpoints, 4, 600))).toEqual(new Set([B.origin]));
  });
});
