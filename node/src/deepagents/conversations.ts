/** Which sandbox a call goes to: always the same one, or that of the current thread. */

import { ClosedError, PodGone, SandboxNotFound, SandboxRestarted, Unreachable } from "../errors.js";
import { type Manager, sandboxId } from "../podbay.js";
import type { Sandbox } from "../sandbox.js";
import { requiredThreadId, threadId } from "./run.js";

/** How many threads keep their connection. Others reconnect with their next call. */
const KEPT = 1000;

/** Provides the sandbox for an operation. */
export interface Source {
  /** The id of the sandbox that a call would use. */
  readonly id: string;
  /** The sandbox for the current call. */
  sandbox(): Promise<Sandbox>;
  /** Called with the failure of an operation. */
  failed(failure: unknown): void;
}

/** One sandbox for all calls, created by the first. */
export class SingleSandbox implements Source {
  readonly only: Sandbox;

  constructor(sandbox: Sandbox) {
    this.only = sandbox;
  }

  get id(): string {
    return this.only.id;
  }

  sandbox(): Promise<Sandbox> {
    return Promise.resolve(this.only);
  }

  /** Does nothing: a sandbox that the user chose isn't replaced. */
  failed(): void {}
}

/** A sandbox for each thread, found by the `thread_id` of the current run. */
export class SandboxPerThread implements Source {
  readonly manager: Manager;
  readonly tenant: string;
  // A cache only: the sandbox's id follows from tenant and thread. In order of use, oldest first.
  readonly #open = new Map<string, Promise<Sandbox>>();

  constructor(manager: Manager, tenant: string) {
    this.manager = manager;
    this.tenant = tenant;
  }

  get id(): string {
    const thread = threadId();
    return thread === undefined ? "podbay-per-thread" : sandboxId(this.tenant, thread);
  }

  sandbox(): Promise<Sandbox> {
    const thread = requiredThreadId("A backend with perThread");
    let found = this.#open.get(thread);
    this.#open.delete(thread);
    if (found === undefined) {
      // Calls that come while it is being created wait for the same one.
      found = this.manager.acquire(thread, this.tenant);
      found.catch(() => this.forget(thread));
    }
    this.#open.set(thread, found);
    const oldest = this.#open.keys().next();
    if (this.#open.size > KEPT && !oldest.done) {
      // Only forgotten: closing would delete it, and a call of that thread may be in progress.
      this.#open.delete(oldest.value);
    }
    return found;
  }

  /** Forgets the current thread's sandbox if it seems to have ended, so that the next call looks it up again. */
  failed(failure: unknown): void {
    const ended = [ClosedError, PodGone, SandboxNotFound, SandboxRestarted, Unreachable];
    const thread = threadId();
    if (thread !== undefined && ended.some((kind) => failure instanceof kind)) {
      this.forget(thread);
    }
  }

  /** Forgets the current thread's sandbox if it ended since its last call. */
  async refresh(): Promise<void> {
    const thread = threadId();
    const known = thread === undefined ? undefined : this.#open.get(thread);
    try {
      await (await known)?.hello();
    } catch (failure) {
      this.failed(failure);
    }
  }

  /** Drops a thread's sandbox from the cache. The sandbox itself stays. */
  forget(thread: string): void {
    this.#open.delete(thread);
  }

  /** Empties the cache. The sandboxes themselves stay. */
  clear(): void {
    this.#open.clear();
  }
}
