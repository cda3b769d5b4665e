/** Agents and graph nodes with a sandbox for each thread. */

import { randomBytes } from "node:crypto";
import type { RunnableConfig } from "@langchain/core/runnables";
import { type CreateDeepAgentParams, createDeepAgent } from "deepagents";
import { PodbaySandbox } from "../deepagents/backend.js";
import { requiredThreadId } from "../deepagents/run.js";
import { ConfigError, PodGone, ProviderError, SandboxNotFound } from "../errors.js";
import type { PodbayOptions } from "../options.js";
import { Manager, type ManagerOptions, Podbay, sandboxId } from "../podbay.js";
import type { Cleaned } from "../results.js";
import type { Sandbox } from "../sandbox.js";
import { SANDBOX_KEY, sandboxIdMiddleware } from "./state.js";

/** The label that names the manager that created a sandbox, which `shutdown` deletes. */
const CREATED_BY = "manager";

/** Options of a `SandboxManager`: settings of the sandboxes, and what new ones are like. */
export interface SandboxManagerOptions extends Omit<PodbayOptions, "labels" | "ttl" | "idleTtl">, ManagerOptions {
  /** Where the sandboxes come from. It has its settings already. */
  provider?: Podbay | undefined;
  /** Keeps threads of the same name apart. */
  tenant?: string | undefined;
  /** How many seconds a command may take. Default: 300. */
  timeout?: number | undefined;
}

/** The model of an agent. */
export type AgentModel = NonNullable<CreateDeepAgentParams["model"]>;

/** Options of agents: those of `createDeepAgent`, except for what the manager provides. */
export interface AgentOptions extends Omit<CreateDeepAgentParams, "model" | "backend"> {
  /** The field of the state that has the sandbox's id. Default: `sandboxId`. */
  stateSandboxKey?: string | undefined;
}

/** An agent as `createDeepAgent` returns it. */
export type Agent = ReturnType<typeof createDeepAgent>;

/** A node of a graph whose state has `messages`. */
export type Node = (state: Record<string, unknown>, config?: RunnableConfig) => Promise<Record<string, unknown>>;

/**
 * Gives every thread of a LangGraph application its own sandbox. A manager keeps no state of its own, so any number of
 * processes can serve any thread. Creating one does no I/O.
 */
export class SandboxManager implements AsyncDisposable {
  /** Where the sandboxes come from. */
  readonly provider: Podbay;
  /** Keeps threads of the same name apart. */
  readonly tenant: string;
  /** The labels of every sandbox that it creates; one of them names the manager. */
  readonly labels: Readonly<Record<string, string>>;
  /** The backend for all threads; pass it to `createDeepAgent` in your own graphs. */
  readonly backend: PodbaySandbox;
  readonly #manager: Manager;
  readonly #wanted: ManagerOptions;
  readonly #timeout: number | undefined;

  constructor(options: SandboxManagerOptions = {}) {
    const { provider, tenant, labels, ttl, idleTtl, timeout, ...settings } = options;
    const given = Object.keys(settings).filter((name) => settings[name as keyof typeof settings] !== undefined);
    if (provider !== undefined && given.length > 0) {
      const names = given.join(", ");
      throw new ConfigError(`the provider already has its settings: pass either the provider or ${names}`);
    }
    this.provider = provider ?? new Podbay(settings);
    this.tenant = tenant ?? "";
    this.labels = { ...labels, [CREATED_BY]: randomBytes(8).toString("hex") };
    this.#wanted = { labels: this.labels, ttl, idleTtl };
    this.#timeout = timeout;
    this.#manager = new Manager(this.provider, this.#wanted);
    this.backend = new PodbaySandbox({ manager: this.#manager, tenant: this.tenant, timeout });
  }

  /** Returns the id of a thread's sandbox, whether or not it exists. */
  sandboxId(thread: string): string {
    return sandboxId(this.tenant, thread);
  }

  /** Returns a thread's sandbox, and creates it if it doesn't exist. */
  acquire(thread: string): Promise<Sandbox> {
    return this.#manager.acquire(thread, this.tenant);
  }

  /**
   * Returns a deep agent with a sandbox per thread, which is created when a tool first needs it. It is the agent itself, not
   * wrapped in anything, so tokens and tool calls stream. Omit the checkpointer under `langgraph dev` and on LangGraph
   * Platform, which provide their own.
   */
  createAgent(model: AgentModel, options: AgentOptions = {}): Agent {
    const { stateSandboxKey = SANDBOX_KEY, middleware = [], ...rest } = options;
    if ("backend" in rest) {
      throw new ConfigError("the backend of these agents is the thread's sandbox: omit backend");
    }
    const sandbox = sandboxIdMiddleware((thread) => this.sandboxId(thread), this.backend, stateSandboxKey);
    const all = { ...rest, model, backend: this.backend, middleware: [...middleware, sandbox] };
    // The SDK's types follow every option into the agent's; here only those that all agents have are known.
    return createDeepAgent(all as unknown as Parameters<typeof createDeepAgent>[0]) as unknown as Agent;
  }

  /**
   * Returns a node that finds or creates the thread's sandbox and writes its id to the state. Put it before nodes that use
   * `backend` if the sandbox should exist before the model's first answer.
   */
  createSetupNode(options: Pick<AgentOptions, "stateSandboxKey"> = {}): Node {
    const key = options.stateSandboxKey ?? SANDBOX_KEY;
    return async (state, config) => {
      const sandbox = await this.acquire(requiredThreadId("A sandbox's setup node", config));
      return state[key] === sandbox.id ? {} : { [key]: sandbox.id };
    };
  }

  /** Returns a node that runs a deep agent on the state's `messages`, in the thread's sandbox. */
  createAgentNode(model: AgentModel, options: AgentOptions = {}): Node {
    const key = options.stateSandboxKey ?? SANDBOX_KEY;
    const agent = this.createAgent(model, options);
    return async (state, config) => {
      const thread = requiredThreadId("A sandbox's agent node", config);
      const input = { messages: state["messages"] } as Parameters<Agent["invoke"]>[0];
      const { messages } = await agent.invoke(input, config);
      return { messages, [key]: this.sandboxId(thread) };
    };
  }

  /** Returns the sandbox with this id as a backend, or a new one if it doesn't exist; its `id` tells which. */
  async getOrReconnect(id?: string): Promise<PodbaySandbox> {
    const sandbox =
      (id === undefined ? undefined : await this.#find(id)) ?? (await this.provider.getOrCreate(this.#wanted));
    return PodbaySandbox.create({ sandbox, timeout: this.#timeout });
  }

  async #find(id: string): Promise<Sandbox | undefined> {
    try {
      return await this.provider.reconnect(id);
    } catch (failure) {
      if (failure instanceof SandboxNotFound || failure instanceof PodGone) {
        return undefined;
      }
      throw failure;
    }
  }

  /** Deletes expired sandboxes and, with `maxIdle` (seconds, or "2h"), those that have been idle for longer. */
  cleanup(maxIdle?: number | string): Promise<Cleaned> {
    return this.provider.cleanup(maxIdle);
  }

  /** Deletes every sandbox that this manager created, even if another process is using it. Returns their ids. */
  async shutdown(): Promise<string[]> {
    const labels = { [CREATED_BY]: this.labels[CREATED_BY] ?? "" };
    const ids: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.provider.list({ labels, cursor });
      ids.push(...page.sandboxes.map((listed) => listed.id));
      cursor = page.cursor;
    } while (cursor !== undefined);
    const ends = await Promise.allSettled(ids.map((id) => this.provider.delete(id)));
    const failed = ends.flatMap((end, index) => (end.status === "rejected" ? [`${ids[index]}: ${end.reason}`] : []));
    if (failed.length > 0) {
      const reasons = failed.join("; ");
      throw new ProviderError(`${failed.length} of ${ids.length} sandboxes couldn't be deleted, try again: ${reasons}`);
    }
    return ids;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.shutdown();
  }
}
