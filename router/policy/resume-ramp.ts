// How a target is taken up again that had asked for time: in steps, not with all that has waited for it at once.
//
//   window    requests that may be owed a first token at a time: 1 at first, one more with each first token (so it doubles
//             with each round of them), half as many with each that fails, 1 again where it asks for time anew
//   headroom  beyond one at a time, only while the target has room by its own figures
//
// It is over once nobody is held back by it, or nothing has come for a while.

/** Nobody has come for so long since its last one: whatever filled the target is over, ms. */
const IDLE_MS = 30_000;

export class ResumeRamp {
  /** Work of each attempt that is owed its first token, ms. */
  readonly #owed = new Map<string, number>();
  #owedMs = 0;
  #window = 1;
  #movedMs: number;
  #priority: number;

  /** `priority`: of what it refused. What is more urgent is not held back. */
  constructor(nowMs: number, priority: number) {
    this.#movedMs = nowMs;
    this.#priority = priority;
  }

  concerns(priority: number): boolean {
    return priority >= this.#priority;
  }

  get window(): number {
    return this.#window;
  }

  /** Work that is owed its first token, ms: what of the target's queue is sure to be there, however old its figures are. */
  get owedMs(): number {
    return this.#owedMs;
  }

  /** Whether one more may go now. `hasRoom`: by what the target says of itself. */
  takes(hasRoom: boolean): boolean {
    const owed = this.#owed.size;
    return owed === 0 || (hasRoom && owed < this.#window);
  }

  sent(attempt: string, workMs: number, nowMs: number): void {
    this.#owed.set(attempt, workMs);
    this.#owedMs += workMs;
    this.#movedMs = nowMs;
  }

  /** Its first token has come. */
  began(attempt: string, nowMs: number): void {
    if (!this.#settle(attempt)) return;
    this.#window += 1;
    this.#movedMs = nowMs;
  }

  /** It has ended, and had no first token where it is still owed one. */
  ended(attempt: string, failed: boolean): void {
    if (!this.#settle(attempt)) return;
    if (failed) this.#window = Math.max(1, Math.floor(this.#window / 2));
  }

  /** It asks for time anew: what it still answers of before says nothing of afterwards. */
  again(nowMs: number, priority: number): void {
    this.#owed.clear();
    this.#owedMs = 0;
    this.#window = 1;
    this.#movedMs = nowMs;
    this.#priority = Math.min(this.#priority, priority);
  }

  /** Nobody is held back by it any more. */
  isOver(held: number, nowMs: number): boolean {
    if (held > 0) return false;
    const grown = this.#window > 1 && this.#owed.size < this.#window;
    return grown || nowMs - this.#movedMs >= IDLE_MS;
  }

  #settle(attempt: string): boolean {
    const workMs = this.#owed.get(attempt);
    if (workMs === undefined) return false;
    this.#owed.delete(attempt);
    this.#owedMs = this.#owed.size === 0 ? 0 : this.#owedMs - workMs;
    return true;
  }
}
