/** Creates, finds, lists and deletes sandboxes. */

import type { ExecuteResponse } from "deepagents";
import { type ExecuteOptions, PodbaySandbox, type PodbaySandboxOptions } from "../../deepagents/backend.js";
import { Podbay, type ListOptions as Query } from "../../podbay.js";
import type { Listed } from "../../results.js";
import type { Sandbox } from "../../sandbox.js";
import {
  defaultExecuteConfig,
  type KubernetesProviderConfig,
  LABEL_PREFIX,
  labelsOf,
  podbayOptions,
  type ResolvedConfig,
  resolveConfig,
  resolveExecuteConfig,
  validateConfig,
} from "./config.js";
import { SandboxNotFoundError, translated } from "./errors.js";

/** Which sandbox is wanted, and what a new one is like. */
export interface GetOrCreateOptions {
  /** An existing sandbox. If it no longer exists, a new one is created: its `id` tells. */
  sandboxId?: string | undefined;
  /** Labels of a new sandbox. */
  labels?: Record<string, string> | undefined;
  /** How many seconds it may live. */
  ttlSeconds?: number | undefined;
  /** How many seconds it may be idle. */
  ttlIdleSeconds?: number | undefined;
}

/** A sandbox in a list. */
export interface SandboxInfo {
  /** Its id. */
  id: string;
  /** The configuration's namespace. */
  namespace: string;
  /** Its labels, with their prefix. */
  labels?: Record<string, string>;
  /** When it was created and last used. */
  annotations?: Record<string, string>;
  /** ISO 8601. */
  createdAt?: string;
  /** As of a pod: Pending, Running, Succeeded. */
  phase?: string;
  /** running, warm, pending, suspended or terminated. */
  status?: string;
}

/** One page of a list. */
export interface SandboxListResponse {
  /** The sandboxes of this page. */
  sandboxes: SandboxInfo[];
  /** Where the next page begins. */
  cursor?: string;
}

/** The outcome of a cleanup. */
export interface CleanupResult {
  /** The ids of the deleted sandboxes. */
  deleted: string[];
  /** How many were kept. */
  kept: number;
}

/** How full the warm pool is. */
export interface WarmPoolStatus {
  /** Pods that wait to be claimed. */
  available: number;
  /** Pods that are in use. */
  active: number;
  /** All of the pool: waiting, in use or still starting. */
  total: number;
  /** How many pods should wait. */
  target: number;
}

/** How many sandboxes there are. */
export interface ProviderStats {
  /** All sandboxes. */
  total: number;
  /** Those that run. */
  running: number;
  /** Those that wait in a warm pool. */
  warm: number;
  /** Those that run and haven't been used for a while. */
  idle: number;
  /** How many belong to threads. */
  threadIds: number;
}

/** The label of sandboxes whose id is derived from a thread. */
export const THREAD_SCOPED: Readonly<Record<string, string>> = { scope: "thread" };

const PHASES: Readonly<Record<string, string>> = { running: "Running", warm: "Running", pending: "Pending" };

/** Options of a `KubernetesSandbox`. */
export interface KubernetesSandboxOptions extends PodbaySandboxOptions {
  /** The shell that runs commands. Default: /bin/sh. */
  shell?: string | undefined;
}

/** A Deep Agents backend in a sandbox of Podbay. */
export class KubernetesSandbox extends PodbaySandbox {
  #active: ((id: string) => unknown) | undefined;
  readonly #shell: string;

  constructor({ shell = defaultExecuteConfig.shell, ...options }: KubernetesSandboxOptions = {}) {
    super(options);
    this.#shell = shell;
  }

  /** Has a function called after each command. */
  setActivityCallback(callback: ((id: string) => unknown) | undefined): void {
    this.#active = callback;
  }

  /** Runs a command. After `timeout` seconds the response has exit code 124 and the output so far. */
  override async execute(command: string, options: ExecuteOptions = {}): Promise<ExecuteResponse> {
    const isDefault = this.#shell === defaultExecuteConfig.shell;
    const line = isDefault ? command : `exec ${quoted(this.#shell)} -c ${quoted(command)}`;
    const response = await super.execute(line, options);
    this.#active?.(this.id);
    return response;
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Creates and finds sandboxes. It keeps no state: store `sandbox.id`, with which any process can reconnect. */
export class KubernetesProvider {
  /** The `Podbay` behind this object. */
  readonly core: Podbay;
  readonly #config: ResolvedConfig;

  constructor(config: KubernetesProviderConfig = {}) {
    validateConfig(config);
    this.#config = resolveConfig(config);
    this.core = new Podbay(podbayOptions(this.#config));
  }

  /** Returns the sandbox with this id, or a new one if it doesn't exist; its `id` tells which. */
  async getOrCreate(options: string | GetOrCreateOptions = {}): Promise<KubernetesSandbox> {
    const { sandboxId, labels, ttlSeconds, ttlIdleSeconds } =
      typeof options === "string" ? { sandboxId: options } : options;
    if (sandboxId !== undefined) {
      try {
        return await this.reconnect(sandboxId);
      } catch (failure) {
        if (!(failure instanceof SandboxNotFoundError)) {
          throw failure;
        }
      }
    }
    const wanted = {
      labels: labelsOf(this.#config.defaultLabels, labels),
      ttl: ttlSeconds ?? this.#config.ttlSeconds,
      idleTtl: ttlIdleSeconds ?? this.#config.ttlIdleSeconds,
    };
    return this.backendOf(await this.#call(() => this.core.getOrCreate(wanted)));
  }

  /** Returns the sandbox with this id; rejects with `SandboxNotFoundError` if it no longer exists. */
  async reconnect(sandboxId: string): Promise<KubernetesSandbox> {
    return this.backendOf(await this.#call(() => this.core.reconnect(sandboxId)));
  }

  /** Lists one page of sandboxes, optionally only those with these labels and this status. */
  async list(
    options: { cursor?: string; labels?: Record<string, string>; status?: string } = {},
  ): Promise<SandboxListResponse> {
    const { cursor, labels, status } = options;
    const query: Query = { cursor, labels: labelsOf(labels), status: status as Query["status"] };
    const page = await this.#call(() => this.core.list(query));
    const sandboxes = page.sandboxes.map((listed) => this.#info(listed));
    return page.cursor === undefined ? { sandboxes } : { sandboxes, cursor: page.cursor };
  }

  /** Deletes a sandbox and everything that belongs to it. It isn't an error if it no longer exists. */
  async delete(sandboxId: string): Promise<void> {
    await this.#call(() => this.core.delete(sandboxId));
  }

  /** Deletes expired sandboxes, and those that have been idle for `maxIdleSeconds`. */
  async cleanup(maxIdleSeconds?: number): Promise<CleanupResult> {
    const { deleted, kept, failed } = await this.#call(() => this.core.cleanup(maxIdleSeconds));
    for (const { id, reason } of failed) {
      process.emitWarning(`the expired sandbox ${id} couldn't be deleted: ${reason}`, "PodbayWarning");
    }
    return { deleted, kept };
  }

  /** Counts the sandboxes. */
  async stats(idleThresholdSeconds = 300): Promise<ProviderStats> {
    const found: Listed[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#call(() => this.core.list({ labels: labelsOf(), cursor }));
      found.push(...page.sandboxes);
      cursor = page.cursor;
    } while (cursor !== undefined);
    const since = Date.now() - idleThresholdSeconds * 1000;
    const idle = (listed: Listed) => listed.phase === "running" && (listed.active ?? listed.created) < since;
    const threads = (listed: Listed) =>
      Object.entries(THREAD_SCOPED).every(([key, value]) => listed.labels[key] === value);
    return {
      total: found.length,
      running: found.filter((listed) => listed.phase === "running").length,
      warm: found.filter((listed) => listed.phase === "warm").length,
      idle: found.filter(idle).length,
      threadIds: found.filter(threads).length,
    };
  }

  /** Returns how many pods of the warm pool are available and in use. */
  poolStatus(): Promise<WarmPoolStatus> {
    return this.#call(() => this.core.poolStatus());
  }

  #call<T>(work: () => Promise<T>): Promise<T> {
    return translated(work, this.#config.routerUrl ?? this.#config.kubeApiUrl);
  }

  /** Wraps a sandbox of Podbay. */
  backendOf(sandbox: Sandbox): KubernetesSandbox {
    const { execConfig, executeTimeoutMs } = this.#config;
    const { outputLimitBytes, shell } = resolveExecuteConfig(execConfig);
    const timeout = execConfig?.timeoutSeconds ?? executeTimeoutMs / 1000;
    return new KubernetesSandbox({ sandbox, timeout, outputLimit: outputLimitBytes, shell });
  }

  #info(listed: Listed): SandboxInfo {
    const prefixed = (values: Record<string, string>) =>
      Object.fromEntries(Object.entries(values).map(([key, value]) => [LABEL_PREFIX + key, value]));
    const createdAt = new Date(listed.created).toISOString();
    const active = listed.active === undefined ? {} : { "last-activity": new Date(listed.active).toISOString() };
    return {
      id: listed.id,
      namespace: this.#config.namespace,
      labels: prefixed(listed.labels),
      annotations: prefixed({ "created-at": createdAt, ...active }),
      createdAt,
      phase: PHASES[listed.phase] ?? "Succeeded",
      status: listed.phase,
    };
  }
}
