// The link between an agent, which dials, and a regional router.

import {
  decodeAgentMessage,
  decodeRouterMessage,
  encodeAgentMessage,
  encodeRouterMessage,
} from '../protocol/codec.ts';
import {
  PROTOCOL_VERSION,
  type AgentMessage,
  type Hello,
  type RouterMessage,
  type Welcome,
} from '../protocol/messages.ts';
import { LINK_LIMITS, type LinkLimits } from './link-socket.ts';
import type { ChildWords, ParentWords } from './link-words.ts';

export type ToldByAgent = Exclude<AgentMessage, Hello>;

/**
 * What an agent hears. A router says up to three messages of each request, and one that runs by itself on a core has some
 * thousand small requests a second, all of which may go to one agent's engines; their bytes are bounded as others' are. What a
 * router hears follows from what its agent has to say.
 */
export const AGENT_LINK_LIMITS: LinkLimits = { ...LINK_LIMITS, messagesPerS: 50_000 };

export const ROUTER_OF_AGENTS: ParentWords<Hello, ToldByAgent, RouterMessage> = {
  version: PROTOCOL_VERSION,
  decode: decodeAgentMessage,
  encode: encodeRouterMessage,
  speaksFor: ({ pool }) => pool,
  child: 'agent',
  named: ({ agentId, pool }) => ({ agentId, pool }),
};

export const AGENT_OF_ROUTERS: ChildWords<
  AgentMessage,
  Welcome,
  Exclude<RouterMessage, Welcome>
> = {
  version: PROTOCOL_VERSION,
  decode: decodeRouterMessage,
  encode: encodeAgentMessage,
  siblings: ({ siblings }) => siblings,
};
