// The runbook as data: codes by heading, and the anchors that others may name.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const FILE = join(import.meta.dirname, '../../docs/runbook.md');

export const runbookText = readFileSync(FILE, 'utf8');

/** As a page's headings are linked to. */
export function anchorsOf(page: string): string[] {
  return Array.from(page.matchAll(/^#+ (.+)$/gm), ([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/[^a-z0-9 -]/g, '')
      .replaceAll(' ', '-'),
  );
}

export function runbookAnchors(): string[] {
  return anchorsOf(runbookText);
}

/** Cells of the table rows under a heading, up to the next one of any level; the code without its marks. */
export function rowsUnder(heading: string): { code: string; cells: string[] }[] {
  const [, behind] = runbookText.split(new RegExp(`^#+ ${heading}$`, 'm'));
  if (behind === undefined) throw new Error(`the runbook has no heading ${heading}`);
  const [section = ''] = behind.split(/^#/m);
  return Array.from(section.matchAll(/^\| `([^`]+)` \|(.*)\|$/gm), ([, code = '', rest = '']) => ({
    code,
    cells: rest.split('|').map((cell) => cell.trim()),
  }));
}

export function codesUnder(...headings: string[]): string[] {
  return headings.flatMap((heading) => rowsUnder(heading).map(({ code }) => code));
}
