// The byte of flags that a row of the prefix index has: three bits for its parent (`prefix-parents.ts`), two for its
// holders (`prefix-holders.ts`).

/** Its parent is the next row, or is written down, or there is none, or nobody knows: none of the three. */
export const NEXT = 1;
export const KEPT = 2;
export const ROOT = 4;
export const PARENT = NEXT | KEPT | ROOT;

/** Nobody is said to hold it yet: its targets are hopes. */
export const WISHED = 8;
/** Some are said to hold it, and hopes for others are written down. */
export const HOPED = 16;
export const HOPES = WISHED | HOPED;
