// A check: a rule in words, and how to see whether an engine keeps it.
//
// A check throws (`node:assert`) when the rule is broken. Checks do not rest on each other: each makes prompts of
// its own and compares counters with what they were when it began, so any of them may run alone.

import type { Capability, ConformanceSubject } from './subject.ts';

export interface Check {
  /** The rule, as a sentence. */
  readonly name: string;
  readonly needs?: readonly Capability[];
  /** What the engine must be like when the check begins. Default `serving`. */
  readonly begins?: 'serving' | 'stopped';
  /** ms after which the check has failed. Default 30,000. */
  readonly limitMs?: number;
  run(subject: ConformanceSubject): Promise<void>;
}

export interface Theme {
  readonly name: string;
  readonly checks: readonly Check[];
}

export type Outcome =
  | { readonly result: 'ok'; readonly ms: number }
  | { readonly result: 'failed'; readonly ms: number; readonly why: string }
  | { readonly result: 'skipped'; readonly missing: readonly Capability[] };

/** Capabilities that the check needs and the subject lacks. */
export function missingFor(check: Check, subject: ConformanceSubject): Capability[] {
  return (check.needs ?? []).filter((each) => !subject.capabilities.has(each));
}
