/** The errors of @bitkaio/langchain-kubernetes. */

import {
  ConfigError,
  ControllerMissing,
  NameTaken,
  PodbayError,
  PodGone,
  SandboxNotFound,
  StartupTimeout,
  TemplateNotFound,
  Unreachable,
  WarmPoolNotFound,
} from "../../errors.js";

/** A sandbox can't be created, found or deleted. `cause` is Podbay's own error. */
export class SandboxError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
  }
}

/** The sandbox doesn't exist, or no longer exists. */
export class SandboxNotFoundError extends SandboxError {}
/** A sandbox wasn't ready in time. */
export class SandboxStartupTimeoutError extends SandboxError {}
/** A command couldn't be run. */
export class SandboxExecError extends SandboxError {}
/** The cluster has something else of that name. */
export class NamespaceConflictError extends SandboxError {}
/** The router or the cluster can't be reached. */
export class SandboxRouterError extends SandboxError {
  /** The configuration's `routerUrl`, or its `kubeApiUrl`; empty if it has neither. */
  readonly url: string;

  constructor(message: string, url = "", cause?: unknown) {
    super(message, cause);
    this.url = url;
  }
}
/** The SandboxTemplate, or a warm pool that uses it, doesn't exist. */
export class TemplateNotFoundError extends SandboxError {}
/** Something that this mode needs is missing, such as the controller. */
export class MissingDependencyError extends SandboxError {}

/** Podbay's errors, and those that programs for @bitkaio/langchain-kubernetes look for. */
const KINDS = [
  [[SandboxNotFound, PodGone], SandboxNotFoundError],
  [[StartupTimeout], SandboxStartupTimeoutError],
  [[TemplateNotFound, WarmPoolNotFound], TemplateNotFoundError],
  [[ControllerMissing], MissingDependencyError],
  [[NameTaken], NamespaceConflictError],
] as const;

/** Runs something, and throws the errors that @bitkaio/langchain-kubernetes documents. `url` is what may be unreachable. */
export async function translated<T>(work: () => Promise<T>, url?: string): Promise<T> {
  try {
    return await work();
  } catch (failure) {
    // A setting that is wrong says best itself what to do.
    if (!(failure instanceof PodbayError) || failure instanceof ConfigError) {
      throw failure;
    }
    if (failure instanceof Unreachable) {
      throw new SandboxRouterError(failure.message, url, failure);
    }
    const found = KINDS.find(([from]) => from.some((kind) => failure instanceof kind));
    throw new (found?.[1] ?? SandboxError)(failure.message, failure);
  }
}
