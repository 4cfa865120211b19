import { expect, test } from 'vitest';
import { anotherServer, anotherServersStatus, isAnotherServer } from './own-answer.ts';

test('an error is of another server where it finds nothing and bears no header of ours', () => {
  for (const status of [404, 405, 410]) {
    expect(isAnotherServer(status, { server: 'nginx' })).toBe(true);
    expect(isAnotherServer(status, { 'server-timing': 'ttft;dur=1' })).toBe(false);
    expect(isAnotherServer(status, { 'x-spillway-request-id': 'a' })).toBe(false);
  }
  for (const status of [400, 413, 422, 431]) expect(isAnotherServer(status, {})).toBe(false);
});

test('its status is found again in what is said of it', () => {
  expect(anotherServersStatus(anotherServer(404))).toBe('404');
  expect(anotherServersStatus('status 404')).toBe(null);
});
