// The configuration of a command: file, environment and flags, checked together.

import type { Overlay } from '../../shared/config/diagnostics.ts';
import { loadFleet } from '../../shared/config/load.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { UsageError } from './usage-error.ts';

export function loadOrExplain(file: string | null, overlays: readonly Overlay[]): FleetConfig {
  return loadWithText(file, overlays).config;
}

/** Also the text that it was made from: what a reload compares with. */
export function loadWithText(
  file: string | null,
  overlays: readonly Overlay[],
): { readonly config: FleetConfig; readonly text: string } {
  const result = loadFleet(file, process.env, overlays);
  if (!result.ok) throw new UsageError(result.error);
  return result;
}
