/** The package against the core's tables: operations, settings, errors. */

import * as podbay from "podbay";
import { describe, expect, it } from "vitest";
import { native } from "../esm/native.js";

/** Operations whose method has another name. */
const METHODS: Record<string, string | undefined> = {
  // A running command is an object of its own, and has `write`.
  "exec.input": "stream",
  "exec.list": "commands",
};

function catching(work: () => unknown): unknown {
  try {
    return work();
  } catch (failure) {
    return failure;
  }
}

describe("parity with the core", () => {
  it("has a method for every operation", () => {
    for (const operation of native.operations()) {
      const method = METHODS[operation] ?? operation.split(".").at(-1) ?? "";
      expect(method in podbay.Sandbox.prototype, operation).toBe(true);
    }
  });

  it("has a class for every error", () => {
    for (const { name, code } of native.errors()) {
      expect(podbay, `${name} for ${code}`).toHaveProperty(name);
    }
  });

  it("takes every setting, by its full key and by its short name", () => {
    const keys = podbay.SETTINGS.map((setting) => setting.key);
    expect(new Set(keys).size).toBe(keys.length);
    expect(() => new podbay.Podbay({ "raw.no_such_key": "x" } as podbay.PodbayOptions)).toThrow(/unknown setting/);
    for (const { key, help, kind, variable, modes } of podbay.SETTINGS) {
      expect(help).not.toBe("");
      expect(variable).toBe(`PODBAY_${key.toUpperCase().replace(".", "_")}`);
      const short = (key.split(".").at(-1) ?? "").replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
      for (const name of [key, short]) {
        // What can't be its value: the complaint has to be about the value, not about the name.
        const value = /^(list|mounts|map|objects?)$/.test(kind) ? 1.5 : [[[]]];
        const options = { mode: key === "mode" ? undefined : modes[0], [name]: value } as podbay.PodbayOptions;
        const refused = catching(() => new podbay.Podbay(options));
        expect(refused, name).toBeInstanceOf(Error);
        expect((refused as Error).message, name).not.toMatch(/unknown setting/);
      }
    }
  });

  it("has the workspace's version", () => {
    expect(podbay.VERSION).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
