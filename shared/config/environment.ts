// `${NAME}` in a value of `fleet.yaml` stands for an environment variable, so that secrets stay out of the file.
// `$${` is a plain `${`. A variable that is not set, or empty, is an error: an empty secret protects nothing.

import { isScalar, visit, type Document } from 'yaml';
import type { Problem } from './diagnostics.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

const PATTERN = /\$\$\{|\$\{([^}]*)\}/g;

/** It names a variable that is not set: nothing is known of the value. */
export function isUnset(value: string): boolean {
  return value.includes('${');
}

/** Replaces in place; what could not be replaced is returned. */
export function substitute(document: Document, environment: Environment): readonly Problem[] {
  const problems: Problem[] = [];
  visit(document, {
    Scalar(key, node) {
      if (key === 'key' || !isScalar(node) || typeof node.value !== 'string') return;
      node.value = node.value.replace(PATTERN, (whole: string, variable: string | undefined) => {
        if (variable === undefined) return '${';
        const value = environment[variable];
        if (value !== undefined && value !== '') return value;
        problems.push({
          path: [],
          offset: node.range?.[0] ?? 0,
          message: /^[A-Za-z_][A-Za-z0-9_]*$/.test(variable)
            ? `environment variable ${variable} is ${value === '' ? 'empty' : 'not set'}`
            : `${whole} is not the name of an environment variable`,
        });
        return whole;
      });
    },
  });
  return problems;
}
