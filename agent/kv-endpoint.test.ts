import { expect, test } from 'vitest';
import { kvEndpoint } from './kv-endpoint.ts';

const of = (rank: number, bind = false) => ({ rank, host: '10.0.0.7', bind });

test.each([
  ['tcp://127.0.0.1:5557', of(0), 'tcp://127.0.0.1:5557'],
  ['tcp://127.0.0.1:5557', of(3), 'tcp://127.0.0.1:5560'],
  ['tcp://*:5557', of(1), 'tcp://10.0.0.7:5558'],
  ['tcp://0.0.0.0:5557', of(0), 'tcp://10.0.0.7:5557'],
  ['tcp://[::]:5557', of(0), 'tcp://10.0.0.7:5557'],
  ['tcp://*:5557', of(1, true), 'tcp://*:5558'],
  ['tcp://[fe80::1]:5557', of(1), 'tcp://[fe80::1]:5558'],
  ['ipc:///run/kv', of(0), 'ipc:///run/kv'],
  ['ipc:///run/kv', of(1), null],
  ['inproc://kv', of(2), 'inproc://kv_dp2'],
])('%s, %o: %s', (endpoint, where, expected) => {
  expect(kvEndpoint(endpoint, where)).toBe(expected);
});
