/** A chat server with Express in which every conversation has a sandbox. */

import type { Server } from "node:http";
import { MemorySaver } from "@langchain/langgraph";
import express from "express";
import { type AgentModel, SandboxManager } from "podbay/langgraph";

export function serve(model: AgentModel, port: number): { server: Server; manager: SandboxManager } {
  const manager = new SandboxManager({ tenant: "chat", idleTtl: "30m" });
  // Keeps conversations in this process. With several processes, use a checkpointer that they share.
  const agent = manager.createAgent(model, { checkpointer: new MemorySaver() });
  const app = express();
  app.use(express.json());
  app.post("/chat/:thread", async (request, response) => {
    const { messages } = await agent.invoke(
      { messages: [{ role: "user", content: request.body.message }] },
      { configurable: { thread_id: request.params.thread } },
    );
    response.json({ reply: messages.at(-1)?.text });
  });
  const server = app.listen(port);
  process.once("SIGTERM", async () => {
    server.close();
    // For conversations that should survive a restart, leave this out: `idleTtl` ends their sandboxes.
    await manager.shutdown();
  });
  return { server, manager };
}
