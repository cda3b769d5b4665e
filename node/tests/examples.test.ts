/** The examples, with a scripted model. */

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { serve } from "../examples/express.js";
import { answer } from "../examples/one-shot.js";
import { careful } from "../examples/policy.js";
import { analyse } from "../examples/tool-mode.js";
import { content, ScriptedModel } from "./scripted.js";

const execute = (command: string) => [{ name: "execute", args: { command } }];

describe("the examples", () => {
  it("one-shot", async () => {
    const model = new ScriptedModel([execute("echo $((6 * 7))"), "42"]);
    expect(await answer(model, "What is 6 times 7?")).toBe("42");
    expect(content(model.heard[1]?.at(-1))).toMatch(/^42/);
  });

  it("policy", async () => {
    const model = new ScriptedModel([execute("rm -rf /workspace"), execute("ls"), "done"]);
    const { reply, record } = await careful(model, "Clean up");
    expect(reply).toBe("done");
    expect(record.filter((line) => line.startsWith("exec"))).toEqual([
      "exec rm -rf /workspace: denied",
      "exec ls: allowed",
    ]);
  });

  it("Express", async () => {
    const model = new ScriptedModel([execute("echo kept > x"), "noted", execute("cat x"), "done"]);
    const { server, manager } = serve(model, 0);
    await once(server, "listening");
    const url = `http://localhost:${(server.address() as AddressInfo).port}/chat/thread-${process.pid}`;
    const say = async (message: string) => {
      const headers = { "content-type": "application/json" };
      const response = await fetch(url, { method: "POST", headers, body: JSON.stringify({ message }) });
      return response.json();
    };
    expect(await say("Remember")).toEqual({ reply: "noted" });
    expect(await say("What was it?")).toEqual({ reply: "done" });
    expect(content(model.heard.at(-1)?.at(-1))).toMatch(/^kept/);
    expect(await manager.shutdown()).toHaveLength(1);
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });

  it("tool mode", async () => {
    const model = new ScriptedModel([[{ name: "execute_python", args: { code: "print(6 * 7)" } }], "42"]);
    expect(await analyse(model, "What is 6 times 7?")).toBe("42");
    expect(content(model.heard[1]?.at(-1))).toBe("exit=0\n42\n");
  });
});
