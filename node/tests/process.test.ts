/** Whole processes: how they end, what they leave, worker threads, both module systems. */

import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const run = promisify(execFile);
const root = dirname(dirname(fileURLToPath(import.meta.url)));

describe("a process", () => {
  let directory: string;

  beforeAll(async () => {
    // Below the package, so that programs find it by its name.
    directory = await mkdtemp(join(root, "tests", "tmp-"));
  });
  afterAll(() => rm(directory, { recursive: true }));

  async function program(name: string, source: string): Promise<string> {
    await writeFile(join(directory, name), source);
    const { stdout } = await run(process.execPath, [name], { cwd: directory, timeout: 30_000 });
    return stdout;
  }

  it("ends by itself after close, and when a sandbox is forgotten", async () => {
    const begun = Date.now();
    const closed = 'import { Sandbox } from "podbay"; const s = new Sandbox(); await s.run("true"); await s.close();';
    expect(await program("closed.mjs", closed)).toBe("");
    const forgotten = 'import { Sandbox } from "podbay"; const s = new Sandbox(); await s.run("true");';
    expect(await program("forgotten.mjs", forgotten)).toBe("");
    expect(Date.now() - begun).toBeLessThan(15_000);
  });

  it("takes no settings from Object.prototype", async () => {
    const source = `
      import { Sandbox } from "podbay";
      Object.prototype.mounts = ["/usr:/stolen"];
      Object.prototype.env = { STOLEN: "1" };
      Object.prototype.labels = { stolen: "1" };
      const sandbox = new Sandbox({ env: { OWN: "1" } });
      console.log((await sandbox.run("ls -d /stolen 2>&1; echo $OWN $STOLEN $labels $mounts")).output.trim());
      await sandbox.close();`;
    expect(await program("polluted.mjs", source)).toBe("ls: cannot access '/stolen': No such file or directory\n1\n");
  });

  it("takes its sandbox with it", async () => {
    const id = await program(
      "leashed.mjs",
      'import { Sandbox } from "podbay"; const s = await Sandbox.create(); console.log(s.id); process.exit(0);',
    );
    const { Podbay } = await import("podbay");
    await expect
      .poll(() => new Podbay().list(), { timeout: 10_000 })
      .not.toMatchObject({
        sandboxes: expect.arrayContaining([expect.objectContaining({ id: id.trim() })]),
      });
  });

  it("can use CommonJS", async () => {
    const source = `
      const { Sandbox, NotFound } = require("podbay");
      const { PodbaySandbox } = require("podbay/deepagents");
      (async () => {
        const sandbox = await PodbaySandbox.create();
        console.log((await sandbox.execute("echo $((2 + 2))")).output.trim());
        await sandbox.instance.read("none").catch((error) => console.log(error instanceof NotFound));
        await sandbox.close();
      })();`;
    expect(await program("common.cjs", source)).toBe("4\ntrue\n");
  });

  it("can use worker threads, also after one of them has ended", async () => {
    const source = `
      import { isMainThread, parentPort, Worker } from "node:worker_threads";
      import { Sandbox } from "podbay";
      const work = async () => {
        const sandbox = new Sandbox();
        const { output } = await sandbox.run("echo fine");
        await sandbox.close();
        return output.trim();
      };
      if (isMainThread) {
        const answer = () => new Promise((resolve) => new Worker(new URL(import.meta.url)).once("message", resolve));
        console.log(await Promise.all([answer(), answer(), work()]));
        console.log(await work(), await answer());
      } else {
        parentPort.postMessage(await work());
      }`;
    expect(await program("workers.mjs", source)).toBe("[ 'fine', 'fine', 'fine' ]\nfine fine\n");
  });

  it("holds 100 sandboxes, and leaves none", async () => {
    const source = `
      import { readFileSync, readdirSync } from "node:fs";
      import { Podbay } from "podbay";
      const podbay = new Podbay();
      const open = () => ["fd", "task"].map((what) => readdirSync("/proc/self/" + what).length);
      const children = () => readFileSync("/proc/self/task/" + process.pid + "/children", "utf8").trim();
      const round = async () => {
        const all = await Promise.all(Array.from({ length: 100 }, () => podbay.create()));
        const outputs = await Promise.all(all.map((sandbox, index) => sandbox.run("echo " + index)));
        await Promise.all(all.map((sandbox) => sandbox.close()));
        return outputs.every((result, index) => result.output === index + "\\n");
      };
      console.log(await round());
      await new Promise((resolve) => setTimeout(resolve, 500));
      const before = open();
      console.log(await round());
      await new Promise((resolve) => setTimeout(resolve, 500));
      const after = open();
      console.log(after.map((count, index) => count - before[index] < 20), children());`;
    expect(await program("hundred.mjs", source)).toBe("true\ntrue\n[ true, true ] \n");
  }, 90_000);
});
