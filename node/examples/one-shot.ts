/** One question, one sandbox: it is deleted when the function returns. */

import { createDeepAgent } from "deepagents";
import { PodbaySandbox } from "podbay/deepagents";
import type { AgentModel } from "podbay/langgraph";

export async function answer(model: AgentModel, question: string): Promise<string> {
  await using sandbox = await PodbaySandbox.create({ idleTtl: "10m" });
  const agent = createDeepAgent({ model, backend: sandbox });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: question }] });
  return messages.at(-1)?.text ?? "";
}
