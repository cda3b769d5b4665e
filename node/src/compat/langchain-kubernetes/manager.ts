/** Agents and graph nodes with a sandbox for each thread. */

import { createDeepAgent } from "deepagents";
import { threadId } from "../../deepagents/run.js";
import { type Agent, type AgentModel, type AgentOptions, type Node, SandboxManager } from "../../langgraph/manager.js";
import { SANDBOX_KEY } from "../../langgraph/state.js";
import { type KubernetesProviderConfig, labelsOf, resolveConfig } from "./config.js";
import { SandboxNotFoundError, translated } from "./errors.js";
import { type CleanupResult, KubernetesProvider, type KubernetesSandbox, THREAD_SCOPED } from "./provider.js";

/** Options for a manager's new sandboxes. */
export interface KubernetesSandboxManagerOptions {
  /** How many seconds a sandbox may live. */
  ttlSeconds?: number | undefined;
  /** How many seconds it may be idle. */
  ttlIdleSeconds?: number | undefined;
  /** Labels of every sandbox. */
  defaultLabels?: Record<string, string> | undefined;
}

/**
 * Gives every thread of a LangGraph application its own sandbox. Its id is derived from the `thread_id` and the default labels,
 * so every process finds the same sandbox and a restart loses nothing.
 */
export class KubernetesSandboxManager implements AsyncDisposable {
  readonly #provider: KubernetesProvider;
  readonly #threads: SandboxManager;
  readonly #options: KubernetesSandboxManagerOptions;
  readonly #url: string | undefined;

  constructor(config: KubernetesProviderConfig = {}, options: KubernetesSandboxManagerOptions = {}) {
    const { execConfig, executeTimeoutMs, defaultLabels, ttlSeconds, ttlIdleSeconds } = resolveConfig(config);
    this.#provider = new KubernetesProvider(config);
    this.#url = config.routerUrl ?? config.kubeApiUrl;
    const labels = labelsOf(defaultLabels, options.defaultLabels);
    this.#options = {
      ttlSeconds: options.ttlSeconds ?? ttlSeconds,
      ttlIdleSeconds: options.ttlIdleSeconds ?? ttlIdleSeconds,
      defaultLabels: labels,
    };
    this.#threads = new SandboxManager({
      provider: this.#provider.core,
      tenant: JSON.stringify(Object.entries(labels).toSorted()),
      labels: { ...labels, ...THREAD_SCOPED },
      ttl: this.#options.ttlSeconds,
      idleTtl: this.#options.ttlIdleSeconds,
      timeout: execConfig?.timeoutSeconds ?? executeTimeoutMs / 1000,
    });
  }

  /** Returns a deep agent with a sandbox per thread, created on first use, and its id in the state. */
  async createAgent(model: AgentModel, options: AgentOptions = {}): Promise<Agent> {
    return this.#threads.createAgent(model, options);
  }

  /** Returns a node that finds or creates the thread's sandbox and writes its id to the state. */
  createSetupNode(options: Pick<AgentOptions, "stateSandboxKey"> = {}): Node {
    const node = this.#threads.createSetupNode(options);
    return (state, config) => this.#call(() => node(state, config));
  }

  /**
   * Returns a node that runs a deep agent in the sandbox named by the state, or else in the thread's. If the state names no
   * sandbox that is alive and there is no thread, it creates a new sandbox and writes its id to the state.
   */
  createAgentNode(model: AgentModel, options: AgentOptions = {}): Node {
    const { stateSandboxKey: key = SANDBOX_KEY, ...rest } = options;
    return async (state, config) => {
      const known = state[key];
      const sandbox = await this.#sandboxOf(typeof known === "string" ? known : undefined, threadId(config));
      const all = { ...rest, model, backend: sandbox };
      const agent = createDeepAgent(all as unknown as Parameters<typeof createDeepAgent>[0]) as unknown as Agent;
      const input = { messages: state["messages"] } as Parameters<Agent["invoke"]>[0];
      const { messages } = await agent.invoke(input, config);
      return { messages, [key]: sandbox.id };
    };
  }

  /** Returns the sandbox with this id, or a new one if it doesn't exist; its `id` tells which. */
  getOrReconnect(sandboxId?: string): Promise<KubernetesSandbox> {
    const { ttlSeconds, ttlIdleSeconds } = this.#options;
    // With the manager's own label, so that `shutdown` finds it.
    const labels: Record<string, string> = { ...this.#threads.labels };
    for (const key of Object.keys(THREAD_SCOPED)) {
      delete labels[key];
    }
    return this.#provider.getOrCreate({ sandboxId, labels, ttlSeconds, ttlIdleSeconds });
  }

  /** Deletes expired sandboxes, and those that have been idle for `maxIdleSeconds`. */
  cleanup(maxIdleSeconds?: number): Promise<CleanupResult> {
    return this.#provider.cleanup(maxIdleSeconds);
  }

  /** Deletes every sandbox that this manager created. */
  async shutdown(): Promise<void> {
    await this.#call(() => this.#threads.shutdown());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.shutdown();
  }

  #call<T>(work: () => Promise<T>): Promise<T> {
    return translated(work, this.#url);
  }

  async #sandboxOf(known: string | undefined, thread: string | undefined): Promise<KubernetesSandbox> {
    if (known !== undefined) {
      try {
        return await this.#provider.reconnect(known);
      } catch (failure) {
        if (!(failure instanceof SandboxNotFoundError)) {
          throw failure;
        }
      }
    }
    if (thread === undefined) {
      return this.getOrReconnect();
    }
    return this.#provider.backendOf(await this.#call(() => this.#threads.acquire(thread)));
  }
}
