import { createServer, connect, type AddressInfo } from 'node:net';
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { parseSockets, socketsOf } from './sockets.ts';

const TEXT = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0
   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:D432 08 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000 20 4 30 10 -1
   3: 0100007F:D431 0100007F:1F90 06 00000000:00000000 03:0000176E 00000000     0        0 0 3 0000
`;

test('a table of sockets is read: ports, states, inodes', () => {
  const sockets = parseSockets(TEXT);
  expect(sockets.get('4711')).toEqual({ localPort: 8080, remotePort: 0, state: 'listening' });
  expect(sockets.get('4712')).toEqual({ localPort: 8080, remotePort: 54_321, state: 'open' });
  expect(sockets.get('4713')?.state).toBe('half closed');
  expect(sockets.get('0')?.state).toBe('other');
});

test.runIf(process.platform === 'linux')('its own sockets are found', async () => {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  const mine = socketsOf(process.pid) ?? [];
  expect(mine).toContainEqual({ localPort: port, remotePort: 0, state: 'listening' });
  expect(mine.filter(({ remotePort }) => remotePort === port)).toHaveLength(1);
  client.destroy();
  server.close();
  expect(socketsOf(-1)).toBeNull();
});
