// Which model a request asks for, and what of it its tenant may use.
//
//   name             that model, whatever revision runs
//   name@revision    the same, and no other revision of it will do. A model whose own name is written so goes first
//
// A tenant that is granted `name@revision` alone, and asks for `name`, is served what it is granted.

export interface DemandedModel {
  /** Public name. */
  readonly model: string;
  /** Any of these will do; null: every one. */
  readonly revisions: readonly string[] | null;
}

/** `isName`: whether a model goes by that name as it stands. */
export function demandedModel(written: string, isName: (name: string) => boolean): DemandedModel {
  const at = written.lastIndexOf('@');
  if (at <= 0 || at === written.length - 1 || isName(written)) {
    return { model: written, revisions: null };
  }
  return { model: written.slice(0, at), revisions: [written.slice(at + 1)] };
}

/** What both allow; null: nothing. `models`: as a configuration lists them; null: all. */
export function granted(
  models: Iterable<string> | null,
  { model, revisions }: DemandedModel,
): DemandedModel | null {
  if (models === null) return { model, revisions };
  const pinned: string[] = [];
  for (const name of models) {
    if (name === model) return { model, revisions };
    if (name.startsWith(`${model}@`)) pinned.push(name.slice(model.length + 1));
  }
  const both = bothOf(revisions, pinned);
  return both.length === 0 ? null : { model, revisions: both };
}

/** A demand that stands beside another: both hold. */
export function alsoDemanded(
  { model, revisions }: DemandedModel,
  others: readonly string[] | null,
): DemandedModel {
  return { model, revisions: others === null ? revisions : bothOf(revisions, others) };
}

/** Those of `listed` that the other allows. */
function bothOf(revisions: readonly string[] | null, listed: readonly string[]): readonly string[] {
  return revisions === null ? listed : listed.filter((each) => revisions.includes(each));
}
