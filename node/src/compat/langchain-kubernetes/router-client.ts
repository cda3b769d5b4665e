/** Sandboxes by claims, with the methods of the original's low-level client. */

import { Podbay } from "../../podbay.js";
import type { Listed } from "../../results.js";
import type { Sandbox } from "../../sandbox.js";
import { type KubernetesProviderConfig, LABEL_PREFIX, router, withoutPrefix } from "./config.js";
import { SandboxNotFoundError, SandboxRouterError, translated } from "./errors.js";
import { Recent } from "./recent.js";

/** How many sandboxes stay connected. Others may have ended long ago, and are looked up again when they are used. */
const CONNECTED = 256;

/** Options of a `SandboxRouterClient`. */
export interface SandboxRouterClientOptions
  extends Pick<KubernetesProviderConfig, "serverPort" | "kubeApiUrl" | "kubeToken" | "privateKeyFile"> {
  /** The namespace of the claims. Default: default. */
  namespace?: string | undefined;
  /** How long to wait for a sandbox to be ready. Default: 180,000. */
  sandboxReadyTimeoutMs?: number | undefined;
}

/** A sandbox, as the client describes it. */
export interface RouterSandboxInfo {
  /** Its id, which is the claim's name. */
  name: string;
  /** The claim's namespace. */
  namespace: string;
  /** Whether it can be used. */
  ready: boolean;
  /** running, warm, pending, suspended or terminated. */
  phase?: string;
}

/** The result of a command. */
export interface RunResult {
  /** What it printed to standard output. */
  stdout: string;
  /** What it printed to standard error. */
  stderr: string;
  /** Its exit code: 124 after a timeout, -1 if the outcome is unknown. */
  exitCode: number;
}

/** Creates, finds and deletes sandboxes by claims, and works in them by their names. */
export class SandboxRouterClient {
  readonly #url: string;
  readonly #namespace: string;
  readonly #create: (templateName?: string) => Podbay;
  readonly #podbay: Podbay;
  /** Open connections, by the sandboxes' names. */
  readonly #open = new Recent<Promise<Sandbox>>(CONNECTED);

  constructor(routerUrl: string, options: SandboxRouterClientOptions = {}) {
    const { namespace = "default", kubeApiUrl, kubeToken, sandboxReadyTimeoutMs = 180_000 } = options;
    const { privateKeyFile, serverPort } = options;
    this.#url = routerUrl;
    this.#namespace = namespace;
    this.#create = (templateName) =>
      new Podbay({
        mode: "agent-sandbox",
        namespace,
        apiUrl: kubeApiUrl,
        token: kubeToken,
        labelPrefix: LABEL_PREFIX,
        startupTimeout: sandboxReadyTimeoutMs / 1000,
        templateName,
        ...router({ routerUrl, privateKeyFile, serverPort }),
      });
    this.#podbay = this.#create();
  }

  /** Creates a sandbox from a template, and waits until it is ready. */
  async createSandbox(templateName: string): Promise<RouterSandboxInfo> {
    const sandbox = await this.#call(() => this.#create(templateName).getOrCreate());
    this.#open.set(sandbox.id, Promise.resolve(sandbox));
    return { name: sandbox.id, namespace: this.#namespace, ready: true, phase: "running" };
  }

  /** Deletes a sandbox. It is no error if it doesn't exist. */
  async deleteSandbox(sandboxName: string): Promise<void> {
    this.#open.delete(sandboxName);
    await this.#call(() => this.#podbay.delete(sandboxName));
  }

  /** Lists a page of sandboxes; the selector can have equalities only, such as `a=b,c=d`. */
  async listSandboxes(labelSelector?: string, continueToken?: string): Promise<RouterSandboxInfo[]> {
    const { sandboxes } = await this.#list(labelSelector, continueToken);
    return sandboxes.map(({ id, phase }) => ({
      name: id,
      namespace: this.#namespace,
      ready: phase === "running",
      phase,
    }));
  }

  /** Lists all sandboxes by the metadata of their claims. */
  async listSandboxClaims(labelSelector?: string): Promise<unknown[]> {
    const found: Listed[] = [];
    let cursor: string | undefined;
    do {
      const page = await this.#list(labelSelector, cursor);
      found.push(...page.sandboxes);
      cursor = page.cursor;
    } while (cursor !== undefined);
    return found.map(({ id, labels, created }) => ({
      kind: "SandboxClaim",
      metadata: {
        name: id,
        namespace: this.#namespace,
        labels: Object.fromEntries(Object.entries(labels).map(([key, value]) => [LABEL_PREFIX + key, value])),
        creationTimestamp: new Date(created).toISOString(),
      },
    }));
  }

  /** Returns whether a sandbox can be used. */
  async status(sandboxName: string): Promise<RouterSandboxInfo> {
    const known = { name: sandboxName, namespace: this.#namespace };
    try {
      await this.#call(() => this.#podbay.reconnect(sandboxName));
      return { ...known, ready: true, phase: "running" };
    } catch (failure) {
      if (failure instanceof SandboxNotFoundError) {
        return { ...known, ready: false };
      }
      throw failure;
    }
  }

  /** Runs a shell command. After `timeoutMs` (default: 300,000) it is killed, and its exit code is 124. */
  async run(sandboxName: string, command: string, timeoutMs?: number): Promise<RunResult> {
    const timeout = timeoutMs === undefined ? undefined : timeoutMs / 1000;
    const result = await this.#in(sandboxName, (sandbox) => sandbox.run(command, { timeout }));
    return { stdout: result.stdout, stderr: result.stderr, exitCode: result.exitCode ?? -1 };
  }

  /** Writes a file of any size. */
  async uploadFile(sandboxName: string, path: string, content: Uint8Array): Promise<void> {
    // The caller may change its bytes while the sandbox is looked up.
    const copy = content.slice();
    await this.#in(sandboxName, (sandbox) => sandbox.write(path, copy));
  }

  /** Reads a file of any size. */
  downloadFile(sandboxName: string, path: string): Promise<Uint8Array> {
    return this.#in(sandboxName, (sandbox) => sandbox.readBytes(path));
  }

  #list(selector: string | undefined, cursor: string | undefined): ReturnType<Podbay["list"]> {
    const labels = selector === undefined || selector === "" ? undefined : selected(selector);
    return this.#call(() => this.#podbay.list({ labels, cursor }));
  }

  /** Works in a sandbox. One whose work failed is looked up again the next time. */
  async #in<T>(name: string, work: (sandbox: Sandbox) => Promise<T>): Promise<T> {
    const found = this.#open.get(name) ?? this.#podbay.reconnect(name);
    this.#open.set(name, found);
    try {
      return await this.#call(async () => work(await found));
    } catch (failure) {
      this.#open.delete(name);
      // The original has one class for everything that fails on the way.
      throw failure instanceof Error ? new SandboxRouterError(failure.message, this.#url, failure) : failure;
    }
  }

  #call<T>(work: () => Promise<T>): Promise<T> {
    return translated(work, this.#url);
  }
}

/** The labels of a selector. */
function selected(selector: string): Record<string, string> {
  const pairs = selector.split(",").map((part) => /^\s*([^=!\s]+)\s*==?\s*([^=\s]*)\s*$/.exec(part));
  return Object.fromEntries(
    pairs.map((pair) => {
      if (pair === null) {
        throw new Error(`can't select by "${selector}": use equalities such as "a=b,c=d"`);
      }
      return [withoutPrefix(pair[1] ?? ""), pair[2] ?? ""];
    }),
  );
}
