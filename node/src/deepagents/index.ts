/**
 * A Deep Agents backend in which every file operation and command is one request to a sandbox.
 *
 * ```ts
 * import { createDeepAgent } from "deepagents";
 * import { PodbaySandbox } from "podbay/deepagents";
 *
 * await using sandbox = await PodbaySandbox.create();
 * const agent = createDeepAgent({ model, backend: sandbox });
 * ```
 */

import { PodbaySandbox, type PodbaySandboxOptions } from "./backend.js";

export { type ExecuteOptions, PodbaySandbox, type PodbaySandboxOptions } from "./backend.js";
export { MissingThread, threadId } from "./run.js";

/** Where Deep Agents itself writes. If `allowPrefixes` leaves these out, it can't offload large results to files. */
export const ARTEFACT_PATHS: readonly string[] = ["/large_tool_results", "/conversation_history", "/blobs"];

/** Creates a sandbox. */
export type AsyncPodbaySandboxFactory = () => Promise<PodbaySandbox>;

/** A factory that creates a new sandbox at each call. Deep Agents calls a factory for every step, so share its result. */
export function createPodbaySandboxFactory(options: PodbaySandboxOptions = {}): AsyncPodbaySandboxFactory {
  return () => PodbaySandbox.create(options);
}

/** A factory that always returns the same sandbox. */
export function createPodbaySandboxFactoryFromSandbox(sandbox: PodbaySandbox): () => PodbaySandbox {
  return () => sandbox;
}
