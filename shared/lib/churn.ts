// A map and a set for what comes and goes all the time: open requests, leases.
//
// A Map's table that is full of deleted entries is replaced by another one, and names that one for walks under way. Once a
// table has grown old it is garbage that only a full collection takes, and until then it keeps the table after it, that one
// the next, and so on, and with them what was open when each was replaced: of a router nearly every request (9 KB each,
// 50 MB between two full collections). These begin a new Map after as many removals as there are entries, so that the
// chain is cut: nothing leads from the old Map to the new one.
//
// As a Map and a Set otherwise, but for walks during which something is added: they go on over what there was.

/** Removals before a new Map pays, however few entries there are. */
const LEAST = 64;

export class ChurnMap<K, V> {
  #map = new Map<K, V>();
  /** Removals since the Map is this one. */
  #removed = 0;

  get size(): number {
    return this.#map.size;
  }

  get(key: K): V | undefined {
    return this.#map.get(key);
  }

  has(key: K): boolean {
    return this.#map.has(key);
  }

  set(key: K, value: V): this {
    if (this.#removed >= LEAST && this.#removed >= this.#map.size) {
      this.#map = new Map(this.#map);
      this.#removed = 0;
    }
    this.#map.set(key, value);
    return this;
  }

  delete(key: K): boolean {
    const was = this.#map.delete(key);
    if (was) this.#removed += 1;
    return was;
  }

  clear(): void {
    this.#removed += this.#map.size;
    this.#map.clear();
  }

  keys(): MapIterator<K> {
    return this.#map.keys();
  }

  values(): MapIterator<V> {
    return this.#map.values();
  }

  [Symbol.iterator](): MapIterator<[K, V]> {
    return this.#map[Symbol.iterator]();
  }
}

export class ChurnSet<T> {
  #set = new Set<T>();
  #removed = 0;

  get size(): number {
    return this.#set.size;
  }

  has(member: T): boolean {
    return this.#set.has(member);
  }

  add(member: T): this {
    if (this.#removed >= LEAST && this.#removed >= this.#set.size) {
      this.#set = new Set(this.#set);
      this.#removed = 0;
    }
    this.#set.add(member);
    return this;
  }

  delete(member: T): boolean {
    const was = this.#set.delete(member);
    if (was) this.#removed += 1;
    return was;
  }

  clear(): void {
    this.#removed += this.#set.size;
    this.#set.clear();
  }

  [Symbol.iterator](): SetIterator<T> {
    return this.#set[Symbol.iterator]();
  }
}
