/** What the current LangGraph run says: its thread, and whether it was aborted. */

import type { RunnableConfig } from "@langchain/core/runnables";
import { AsyncLocalStorageProviderSingleton } from "@langchain/core/singletons";
import { PodbayError } from "../errors.js";

/** The config of the current run; undefined outside of one. */
export function runConfig(): RunnableConfig | undefined {
  return AsyncLocalStorageProviderSingleton.getRunnableConfig();
}

/** A run has no `thread_id`, so its sandbox can't be determined. */
export class MissingThread extends PodbayError {
  constructor(what = "This graph") {
    const fix = "invoke it with { configurable: { thread_id: '…' } }";
    super(`${what} needs a thread_id to find the thread's sandbox: ${fix}`, "missing_thread");
  }
}

/** Returns the `thread_id` of a config, or of the current run; undefined if there is none. */
export function threadId(config: RunnableConfig | undefined = runConfig()): string | undefined {
  const thread: unknown = config?.configurable?.["thread_id"];
  // An empty text counts as a forgotten one.
  return thread === undefined || thread === null || String(thread) === "" ? undefined : String(thread);
}

/** Like `threadId`, but throws `MissingThread` if there is none; `what` begins the error message. */
export function requiredThreadId(what: string, config?: RunnableConfig): string {
  const thread = threadId(config ?? runConfig());
  if (thread === undefined) {
    throw new MissingThread(what);
  }
  return thread;
}
