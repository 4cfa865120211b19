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
import type { ChildWords, ParentWords } from './link-words.ts';

export type ToldByAgent = Exclude<AgentMessage, Hello>;

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
