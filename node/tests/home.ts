/** Keeps the tests' sandboxes apart from the user's, and checks that none is left behind. */

import { mkdtemp, rm } from "node:fs/promises";

export default async function setup(): Promise<() => Promise<void>> {
  // The settings of whoever runs the tests don't count.
  for (const name of Object.keys(process.env).filter((name) => name.startsWith("PODBAY_"))) {
    delete process.env[name];
  }
  // The path must be short, because paths of sockets are limited.
  const home = await mkdtemp("/tmp/pb-");
  process.env["PODBAY_HOME"] = home;
  process.env["XDG_CONFIG_HOME"] = `${home}/config`;
  return async () => {
    const { Podbay } = await import("podbay");
    const podbay = new Podbay();
    const { sandboxes } = await podbay.list({ status: "running" });
    const left = sandboxes.map((sandbox) => sandbox.id);
    await Promise.all(left.map((id) => podbay.delete(id)));
    await podbay.cleanup();
    await rm(home, { recursive: true, force: true });
    if (left.length > 0) {
      throw new Error(`tests left sandboxes behind: ${left.join(", ")}`);
    }
  };
}
