/**
 * LangGraph applications in which every thread has its own sandbox, and a sandbox as a tool.
 *
 * ```ts
 * import { MemorySaver } from "@langchain/langgraph";
 * import { SandboxManager } from "podbay/langgraph";
 *
 * const manager = new SandboxManager({ idleTtl: "30m" });
 * const agent = manager.createAgent(model, { checkpointer: new MemorySaver() });
 * ```
 */

export {
  type Agent,
  type AgentModel,
  type AgentOptions,
  type Node,
  SandboxManager,
  type SandboxManagerOptions,
} from "./manager.js";
export { SANDBOX_KEY } from "./state.js";
export {
  type ExecutePythonOptions,
  executePythonTool,
  PROMPT_SUFFIX,
  seedFiles,
  UPLOAD_DIR,
  type VirtualFile,
} from "./tool.js";
