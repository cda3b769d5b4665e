/** A sandbox as a tool: each call runs Python in a fresh sandbox, on a copy of the agent's virtual files. */

import { createDeepAgent } from "deepagents";
import { type AgentModel, executePythonTool, PROMPT_SUFFIX } from "podbay/langgraph";

export async function analyse(model: AgentModel, question: string): Promise<string> {
  const agent = createDeepAgent({
    model,
    tools: [executePythonTool({ timeout: 60 })],
    systemPrompt: `You are a data analyst.${PROMPT_SUFFIX}`,
  });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: question }] });
  return messages.at(-1)?.text ?? "";
}
