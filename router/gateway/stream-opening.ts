// The opening of a chat stream: events that name a role and bring nothing yet. They are no answer.
//
// An engine that drains answers 200 with the role and then aborts, so a stream that has only opened can still fail
// over. Its events are held, at most one a choice, until an event brings anything (text, a tool call, reasoning, a
// finish reason, log-probabilities, …) or the stream ends; then all go on in order. An engine sends role and first
// token together, so nobody waits for it.

import { isObject } from './canonical.ts';

/** Choices of a request that may all open. */
const MAX_OPENINGS = 128;
/** A longer event brings something, or is passed as if it did. */
const MAX_OPENING_BYTES = 4 * 1024;
const ROLE_WORD = Buffer.from('"role"');

export class StreamOpening {
  private readonly choices = new Set<unknown>();
  private events: Buffer[] | null = [];

  /** Something has followed it: nothing is held back any more. */
  get over(): boolean {
    return this.events === null;
  }

  /** Takes an event with data: true where it is held back. */
  holds(event: Buffer, parse: (event: Buffer) => unknown): boolean {
    if (this.events === null || this.events.length >= MAX_OPENINGS) return false;
    if (event.length > MAX_OPENING_BYTES || !event.includes(ROLE_WORD)) return false;
    const indexes = openedBy(parse(event));
    if (indexes === null || indexes.some((index) => this.choices.has(index))) return false;
    for (const index of indexes) this.choices.add(index);
    this.events.push(event);
    return true;
  }

  /** What was held; nothing is from now on. */
  release(): readonly Buffer[] {
    const { events } = this;
    this.events = null;
    return events ?? [];
  }
}

/** Indexes of the choices that an event opens; null where it does anything else. */
function openedBy(value: unknown): unknown[] | null {
  const choices = isObject(value) ? value['choices'] : null;
  if (!Array.isArray(choices) || choices.length === 0) return null;
  const all: readonly unknown[] = choices;
  return all.every(opens) ? all.map((choice) => choice['index']) : null;
}

function opens(choice: unknown): choice is Readonly<Record<string, unknown>> {
  if (!isObject(choice) || !isObject(choice['delta'])) return false;
  const { index: _index, delta, ...rest } = choice;
  const { role, ...brought } = delta as Readonly<Record<string, unknown>>;
  return typeof role === 'string' && isEmpty(rest) && isEmpty(brought);
}

function isEmpty(members: Readonly<Record<string, unknown>>): boolean {
  return Object.values(members).every(
    (value) => value === null || value === '' || (Array.isArray(value) && value.length === 0),
  );
}
