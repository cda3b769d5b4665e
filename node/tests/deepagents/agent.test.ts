import { createDeepAgent } from "deepagents";
import { PodbaySandbox } from "podbay/deepagents";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { content, ScriptedModel } from "../scripted.js";

describe("an agent with a sandbox", () => {
  let sandbox: PodbaySandbox;

  beforeAll(async () => {
    sandbox = await PodbaySandbox.create();
  });
  afterAll(() => sandbox.close());

  it("uses every tool", async () => {
    const model = new ScriptedModel([
      [{ name: "write_file", args: { file_path: "/workspace/a.txt", content: "one\ntwo\nthree\n" } }],
      [{ name: "read_file", args: { file_path: "/workspace/a.txt", limit: 2 } }],
      [{ name: "edit_file", args: { file_path: "/workspace/a.txt", old_string: "two", new_string: "2" } }],
      [{ name: "ls", args: { path: "/workspace" } }],
      [{ name: "grep", args: { pattern: "2", path: "/workspace" } }],
      [{ name: "glob", args: { pattern: "*.txt", path: "/workspace" } }],
      [{ name: "execute", args: { command: "cat a.txt; exit 3" } }],
      [{ name: "delete", args: { file_path: "/workspace/a.txt" } }],
      [{ name: "execute", args: { command: "ls -A" } }],
      "done",
    ]);
    const agent = createDeepAgent({ model, backend: sandbox });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: "work" }] });
    const answers = messages.filter((message) => message.getType() === "tool").map(content);
    expect(answers[0]).toBe("Successfully wrote to '/workspace/a.txt'");
    expect(answers[1]).toBe("@@ lines 1-2 of 3 | next offset 2 @@\none\ntwo");
    expect(answers[2]).toContain("Successfully replaced 1 occurrence");
    expect(answers[3]).toBe("/workspace/a.txt (12 bytes)");
    expect(answers[4]).toContain("/workspace/a.txt");
    expect(answers[4]).toContain("2: 2");
    expect(answers[5]).toContain("a.txt");
    expect(answers[6]).toBe("one\n2\nthree\n\n[Command failed with exit code 3]");
    expect(answers[7]).toContain("/workspace/a.txt");
    expect(answers[8]).toContain("[Command succeeded with exit code 0]");
    expect(model.offered[0]).toEqual(expect.arrayContaining(["execute", "delete", "read_file"]));
  });
});
