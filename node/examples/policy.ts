/** Rules on paths and commands, and a record of everything that the agent did. */

import { createDeepAgent } from "deepagents";
import { ARTEFACT_PATHS, PodbaySandbox } from "podbay/deepagents";
import type { AgentModel } from "podbay/langgraph";

export async function careful(model: AgentModel, question: string): Promise<{ reply: string; record: string[] }> {
  const record: string[] = [];
  await using sandbox = await PodbaySandbox.create({
    allowPrefixes: ["/workspace", ...ARTEFACT_PATHS],
    denyCommands: ["rm -rf", "curl"],
    auditLog: (op, target, meta) => record.push(`${op} ${target}: ${meta.decision}`),
  });
  const agent = createDeepAgent({ model, backend: sandbox });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: question }] });
  return { reply: messages.at(-1)?.text ?? "", record };
}
