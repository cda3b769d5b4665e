/** A map with a limit: adding to a full one drops what wasn't used for longest. */
export class Recent<V> {
  readonly #most: number;
  /** In the order of their last use. */
  readonly #values = new Map<string, V>();

  constructor(most: number) {
    this.#most = most;
  }

  get(key: string): V | undefined {
    return this.#values.get(key);
  }

  /** Sets a value, which counts as using it. */
  set(key: string, value: V): void {
    this.#values.delete(key);
    this.#values.set(key, value);
    const [oldest] = this.#values.keys();
    if (this.#values.size > this.#most && oldest !== undefined) {
      this.#values.delete(oldest);
    }
  }

  delete(key: string): void {
    this.#values.delete(key);
  }
}
