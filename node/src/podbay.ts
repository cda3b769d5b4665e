/** `Podbay`: finds, creates, lists and deletes sandboxes. `Manager`: a sandbox for each conversation. */

import { type NativePodbay, native } from "./native.js";
import { type Abortable, call, now } from "./operation.js";
import { type PodbayOptions, podbay, type WantedOptions, wanted } from "./options.js";
import type { Cleaned, Page, Phase, PoolStatus, Stats } from "./results.js";
import { Sandbox } from "./sandbox.js";

/** What to list. */
export interface ListOptions extends Abortable {
  /** Only sandboxes with all of these labels. */
  labels?: Record<string, string> | undefined;
  /** Only sandboxes in this state. */
  status?: Phase | undefined;
  /** The maximum number of sandboxes to list. */
  limit?: number | undefined;
  /** Where the previous page ended. */
  cursor?: string | undefined;
}

/** Returns the id of a thread's sandbox, whether or not it exists. */
export function sandboxId(tenant: string, thread: string): string {
  return native.sandboxId(tenant, thread);
}

function defined<T extends object>(options: T): object {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

/**
 * Settings, provider, rules and audit in one object: finds, creates, lists and deletes sandboxes. All state lives with the
 * sandboxes, so any number of processes can share them. Rules and audit apply to every sandbox that it returns.
 */
export class Podbay {
  readonly #native: NativePodbay;

  constructor(options: PodbayOptions = {}) {
    this.#native = podbay(options);
  }

  /** "local", "raw" or "agent-sandbox". */
  get mode(): string {
    return this.#native.mode;
  }

  /** A sandbox that is created, or found, when it is first used. */
  sandbox(options: WantedOptions = {}): Sandbox {
    return new Sandbox(
      undefined,
      now(() => this.#native.lazy(wanted(options))),
    );
  }

  /** Creates a sandbox. On this machine it ends at the latest with this process. */
  create(options: Omit<WantedOptions, "id" | "thread" | "tenant"> & Abortable = {}): Promise<Sandbox> {
    return this.sandbox(options).open(options);
  }

  /**
   * Returns the sandbox with an id or of a thread, and creates it if it doesn't exist; without either, creates a new one.
   * Concurrent callers get the same sandbox. It lives until it is deleted or expires, unless it is leashed to this process.
   */
  async getOrCreate(options: WantedOptions & Abortable = {}): Promise<Sandbox> {
    const found = await call(options.signal, (cancel) => this.#native.getOrCreate(wanted(options), cancel));
    return new Sandbox(undefined, found);
  }

  /** Returns a thread's sandbox, and creates it if it doesn't exist. `Sandbox.replaced` tells whether another one ended. */
  async thread(
    tenant: string,
    thread: string,
    options: Omit<WantedOptions, "id" | "thread" | "tenant"> & Abortable = {},
  ): Promise<Sandbox> {
    const all = wanted({ ...options, tenant, thread });
    return new Sandbox(undefined, await call(options.signal, (cancel) => this.#native.thread(all, cancel)));
  }

  /** Deletes a thread's sandbox. Returns whether there was one. */
  release(tenant: string, thread: string): Promise<boolean> {
    return call(undefined, () => this.#native.release(tenant, thread));
  }

  /** Returns an existing sandbox, or rejects with `SandboxNotFound`. */
  async reconnect(id: string, { signal }: Abortable = {}): Promise<Sandbox> {
    return new Sandbox(undefined, await call(signal, (cancel) => this.#native.reconnect(id, cancel)));
  }

  /** Lists one page of sandboxes, sorted by id. */
  list({ signal, ...options }: ListOptions = {}): Promise<Page> {
    return call(signal, (cancel) => this.#native.list(defined(options), undefined, cancel));
  }

  /** Lists a tenant's sandboxes. */
  listTenant(tenant: string, { signal, ...options }: ListOptions = {}): Promise<Page> {
    return call(signal, (cancel) => this.#native.list(defined(options), tenant, cancel));
  }

  /** Deletes a sandbox and everything that belongs to it. Returns whether there was one. */
  delete(id: string): Promise<boolean> {
    return call(undefined, () => this.#native.delete(id));
  }

  /** Ends a sandbox's processes and keeps what is on its persistent volumes. */
  suspend(id: string): Promise<void> {
    return call(undefined, () => this.#native.suspend(id));
  }

  /** Makes a suspended sandbox usable again. */
  resume(id: string): Promise<void> {
    return call(undefined, () => this.#native.resume(id));
  }

  /** Deletes sandboxes that have expired, and those that have been idle for longer than `maxIdle` (seconds, or "2h"). */
  cleanup(maxIdle?: number | string): Promise<Cleaned> {
    return call(undefined, () => this.#native.cleanup(maxIdle));
  }

  /** Counts sandboxes. Those that haven't been used for `idle` (default 5 minutes) count as idle. */
  stats(idle?: number | string): Promise<Stats> {
    return call(undefined, () => this.#native.stats(idle));
  }

  /** Returns how full the warm pool is; all zeros if there is none. */
  poolStatus(): Promise<PoolStatus> {
    return call(undefined, () => this.#native.poolStatus());
  }

  /** Fills the warm pool once, and resolves when it is full. */
  refill(): Promise<PoolStatus> {
    return call(undefined, () => this.#native.refill());
  }
}

/** Options for a manager's new sandboxes. */
export interface ManagerOptions extends Pick<WantedOptions, "labels" | "ttl" | "idleTtl"> {}

/**
 * Gives each thread of each tenant its own sandbox. A sandbox's id is derived from tenant and thread and a manager keeps no
 * state of its own, so any number of processes can serve any thread.
 */
export class Manager {
  /** Where its sandboxes come from. */
  readonly provider: Podbay;
  readonly #options: ManagerOptions;

  constructor(provider: Podbay | PodbayOptions = {}, options: ManagerOptions = {}) {
    this.provider = provider instanceof Podbay ? provider : new Podbay(provider);
    this.#options = options;
  }

  /** Returns the id of a thread's sandbox, whether or not it exists. */
  static id(tenant: string, thread: string): string {
    return sandboxId(tenant, thread);
  }

  /** Returns a thread's sandbox, and creates it if it doesn't exist. */
  acquire(thread: string, tenant = "", options: Abortable = {}): Promise<Sandbox> {
    return this.provider.thread(tenant, thread, { ...this.#options, ...options });
  }

  /** Deletes a thread's sandbox. Returns whether there was one. */
  release(thread: string, tenant = ""): Promise<boolean> {
    return this.provider.release(tenant, thread);
  }

  /** Lists a tenant's sandboxes. */
  list(tenant = "", options: Omit<ListOptions, "labels" | "status"> = {}): Promise<Page> {
    return this.provider.listTenant(tenant, options);
  }
}
