/** The sandbox's id in the state of a graph. */

import { type AgentMiddleware, createMiddleware } from "langchain";
import { z } from "zod";
import type { PodbaySandbox } from "../deepagents/backend.js";
import { requiredThreadId } from "../deepagents/run.js";

/** The field of a graph's state that has the id of the thread's sandbox. */
export const SANDBOX_KEY = "sandboxId";

/**
 * Writes the id of the thread's sandbox to the agent's state, and has a new one created if the old one has ended.
 *
 * It doesn't create a sandbox itself: the id follows from the thread. That's also why an id that input or a copied thread
 * brings is overwritten: whoever can write to a thread must not reach the sandbox of another.
 */
export function sandboxIdMiddleware(
  idOf: (thread: string) => string,
  backend: PodbaySandbox,
  key: string,
): AgentMiddleware {
  return createMiddleware({
    name: "PodbaySandboxId",
    stateSchema: z.object({ [key]: z.string().nullish() }),
    beforeAgent: async (state: Record<string, unknown>) => {
      const now = idOf(requiredThreadId("An agent with a sandbox per thread"));
      await backend.refresh();
      return state[key] === now ? undefined : { [key]: now };
    },
  });
}
