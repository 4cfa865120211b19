// `--engine-kind`: one for all engines, or one for each in their order.

import type { Option } from 'commander';
import { ENGINE_KINDS, type EngineKind } from '../../shared/model/engine-kind.ts';
import { listOption } from './options.ts';
import { UsageError } from './usage-error.ts';

export function engineKindOption(): Option {
  return listOption(
    '--engine-kind <kind...>',
    'SPILLWAY_ENGINE_KINDS',
    `what the engines are, where what they answer misleads: auto, ${ENGINE_KINDS.join(', ')}; one for all or one for each`,
  );
}

/** One for each of `engines`; null: found out. */
export function engineKinds(
  given: readonly string[] | undefined,
  engines: number,
): readonly (EngineKind | null)[] {
  const kinds = (given ?? ['auto']).map(kindOf);
  const [only] = kinds;
  if (kinds.length === 1) return Array.from({ length: engines }, () => only ?? null);
  if (kinds.length === engines) return kinds;
  throw new UsageError(
    `${engines} × --engine and ${kinds.length} × --engine-kind: give one --engine-kind for all, or one for each --engine in the same order`,
  );
}

function kindOf(text: string): EngineKind | null {
  if (text === 'auto') return null;
  const kind = ENGINE_KINDS.find((each) => each === text);
  if (kind !== undefined) return kind;
  throw new UsageError(
    `--engine-kind ${text}: must be auto, ${ENGINE_KINDS.slice(0, -1).join(', ')} or ${ENGINE_KINDS.at(-1)}`,
  );
}
