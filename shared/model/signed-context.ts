// What both tiers know of the signed context of a request (router/gateway/tier-context.ts), and the configuration has to keep to.

/** Characters of one: a longer one is none of ours, and is not read. */
export const MAX_CONTEXT_LENGTH = 8_192;
