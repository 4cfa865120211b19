// What a process of either tier is told of the listeners it opens and of the clients that come.

import type { TlsPaths } from '../../shared/runtime/tls-files.ts';
import type { ClientAuth } from '../../shared/runtime/tls-server.ts';
import type { ConversationIdSources } from '../../shared/model/conversation-ids.ts';
import type { CorsPolicy } from './cors.ts';

export interface Listen {
  readonly host: string;
  readonly port: number;
  /** Absent or null: plain HTTP. */
  readonly tls?: ListenTls | null;
}

export interface ListenTls extends TlsPaths {
  readonly clientAuth: ClientAuth;
}

/** What those that we connect to by `https` or `wss` must prove, and the certificate that they are shown. */
export interface PeerTls extends TlsPaths {
  /** The name that their certificates must be for; null: that of the URL. */
  readonly serverName: string | null;
}

export interface GatewayLimits {
  /** One request body, bytes. */
  readonly bodyBytes: number;
  /** Times its encoded size that a compressed body may have. */
  readonly bodyRatio: number;
  /** All request bodies in memory together, bytes. */
  readonly bodyBytesMax: number;
  /** All answers together that are held until they are whole, bytes. */
  readonly answerBytesMax: number;
  /** Nesting of a request's JSON. */
  readonly jsonDepth: number;
  readonly openRequests: number;
  readonly headerBytes: number;
  /** From the first byte to the end of a request's head and body, ms. */
  readonly requestTimeoutMs: number;
  /** How long an idle connection of a client is kept, ms. */
  readonly keepAliveMs: number;
  /** How long a client may take nothing of its answer, ms. */
  readonly clientStallMs: number;
}

/** What clients are offered beside the routes themselves. */
export interface SurfaceOptions {
  /** Pages of other origins that may use it; null = none. */
  readonly cors: CorsPolicy | null;
  /** `x-spillway-explain: 1` is answered: it tells replicas and their load. */
  readonly explain: boolean;
}

/** What of a configuration generation the way of a request goes by. */
export interface GatewayReloadable {
  readonly limits: GatewayLimits;
  readonly surface: SurfaceOptions;
  /** ms of silence after which a stream that waits is told that the server is still there. */
  readonly keepAliveAfterMs: number;
  /** Where clients name their conversations; null: nobody asks. */
  readonly conversationIds: ConversationIdSources | null;
}
