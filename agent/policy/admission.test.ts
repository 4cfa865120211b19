import { describe, expect, test } from 'vitest';
import { Admission, UNLIMITED, type AdmissionScrape } from './admission.ts';

/** Eight run, all of them decoding, while three wait. */
function scrape(changes: Partial<AdmissionScrape> = {}): AdmissionScrape {
  return {
    atMs: 1_000,
    running: 8,
    waiting: 3,
    known: { open: 11, withoutFirstToken: 3 },
    foreign: { open: 0, waiting: 0 },
    oldestMs: 500,
    ...changes,
  };
}

describe('an engine is blocked', () => {
  test.each<[string, boolean, Partial<AdmissionScrape>]>([
    ['when nobody is in prefill although requests wait', true, {}],
    ['also by those that wait again', true, { running: 6, waiting: 5 }],
    ['also by strangers', true, { running: 10, foreign: { open: 2, waiting: 0 } }],
    ['not while one is in prefill', false, { known: { open: 11, withoutFirstToken: 4 } }],
    ['not while nothing waits', false, { waiting: 0 }],
    ['not before a step can have met them', false, { oldestMs: 950 }],
    ['not as far as absent gauges tell', false, { running: null }],
  ])('%s: %s', (_, blocked, changes) => {
    expect(new Admission().scraped(scrape(changes))).toBe(blocked);
  });
});

describe('room in the batch', () => {
  test('is unlimited until an engine was blocked', () => {
    const admission = new Admission();
    expect(admission.room(8, null, 0).requests).toBe(UNLIMITED.requests);
    admission.scraped(scrape());
    expect(admission.room(8, null, 1_000).requests).toBe(0);
  });

  test('comes with each that leaves, and is dated', () => {
    const admission = new Admission();
    admission.scraped(scrape());
    admission.room(8, null, 1_000);
    expect(admission.room(7, null, 1_200)).toEqual({ requests: 1, sinceMs: 1_200 });
    expect(admission.room(6, null, 1_300)).toEqual({ requests: 2, sinceMs: 1_200 });
    admission.room(8, null, 1_400);
    expect(admission.room(7, null, 1_500)).toEqual({ requests: 1, sinceMs: 1_500 });
  });

  test('is what the known slots leave', () => {
    expect(new Admission().room(5, 8, 0).requests).toBe(3);
    expect(new Admission().room(9, 8, 0).requests).toBe(0);
  });

  test('is unlimited again once nothing waits or more run', () => {
    for (const later of [{ waiting: 0 }, { running: 9 }]) {
      const admission = new Admission();
      admission.scraped(scrape());
      admission.scraped(scrape(later));
      expect(admission.room(8, null, 2_000).requests).toBe(Infinity);
    }
  });
});
