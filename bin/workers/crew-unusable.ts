/** Workers cannot be had here: no processes, or connections do not reach them. */
export class CrewUnusable extends Error {}
