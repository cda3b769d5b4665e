/**
 * An agent with a sandbox per thread, for `langgraph dev` and LangGraph Platform, which provide their own checkpointer:
 *
 *     MODEL=anthropic:claude-sonnet-4-6 npx @langchain/langgraph-cli dev
 */

import { type Agent, type AgentModel, SandboxManager } from "podbay/langgraph";

const manager = new SandboxManager({ tenant: process.env["TENANT"], idleTtl: "30m", labels: { app: "my-agent" } });

/** The agent itself, so that tokens and tool calls stream. The first tool call creates the thread's sandbox. */
export function agent(model: AgentModel): Agent {
  return manager.createAgent(model, { systemPrompt: "You are a data analyst." });
}

/** The entry point for langgraph.json. */
export function graph(): Agent {
  return agent(process.env["MODEL"] ?? "anthropic:claude-sonnet-4-6");
}
