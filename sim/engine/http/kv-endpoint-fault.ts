// KV events cannot be published where they are wanted: the address is another's, or none.

export class KvEndpointFault extends Error {
  constructor(endpoints: string, cause: unknown) {
    const why = cause instanceof Error ? cause.message : String(cause);
    super(`KV events cannot be published on ${endpoints}: ${why}`, { cause });
  }
}
