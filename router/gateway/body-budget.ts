// Request bodies in memory, counted together: a limit on each is not enough when there are many.

export interface BodyLimits {
  /** One body, bytes. */
  readonly bodyBytes: number;
  /** All bodies together, bytes. */
  readonly bodyBytesMax: number;
}

export class BodyBudget {
  private limits: BodyLimits;
  private held = 0;

  constructor(limits: BodyLimits) {
    this.limits = limits;
  }

  get heldBytes(): number {
    return this.held;
  }

  /** One body's limit, bytes. */
  get bodyBytes(): number {
    return this.limits.bodyBytes;
  }

  configure(limits: BodyLimits): void {
    this.limits = limits;
  }

  /** A holder that takes bytes one after the other and gives all of them back once. */
  open(): BodyHold {
    let mine = 0;
    return {
      take: (bytes) => {
        if (mine + bytes > this.limits.bodyBytes) return 'body_bytes';
        if (this.held + bytes > this.limits.bodyBytesMax) return 'body_bytes_max';
        mine += bytes;
        this.held += bytes;
        return null;
      },
      release: () => {
        this.held -= mine;
        mine = 0;
      },
    };
  }
}

export interface BodyHold {
  /** Null when taken, else the limit that it would break. */
  take(bytes: number): 'body_bytes' | 'body_bytes_max' | null;
  release(): void;
}
