// The configuration of a command: file, environment and flags, checked together.

import type { Overlay } from '../../shared/config/diagnostics.ts';
import { loadFleet, parseFleet } from '../../shared/config/load.ts';
import { readBounded } from '../../shared/config/read.ts';
import type { FleetConfig } from '../../shared/config/schema.ts';
import { UsageError } from './usage-error.ts';

export function loadOrExplain(file: string | null, overlays: readonly Overlay[]): FleetConfig {
  const result = loadFleet(file, process.env, overlays);
  if (!result.ok) throw new UsageError(result.error);
  return result.config;
}

/** Also the text that it was made from, on which the overlays may depend: what a reload compares with. */
export function loadWithText(
  file: string | null,
  overlaysFor: (text: string) => readonly Overlay[],
): { readonly config: FleetConfig; readonly text: string } {
  const text = textOf(file);
  const overlays = overlaysFor(text);
  const result = parseFleet({ file, text, environment: process.env, overlays });
  if (!result.ok) throw new UsageError(result.error);
  return result;
}

/** Empty where there is no file. */
export function textOf(file: string | null): string {
  if (file === null) return '';
  const read = readBounded(file);
  if (!read.ok) throw new UsageError(read.error);
  return read.text;
}
