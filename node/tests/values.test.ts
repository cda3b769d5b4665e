/** Conversions between JavaScript's values and those of the protocol. */

import { describe, expect, it } from "vitest";
import { fromPath, join, milliseconds, name, toPath, toText, whole } from "../esm/values.js";

describe("values of the protocol", () => {
  it.each([
    ["/a/ü😀", "/a/ü😀"],
    ["a\udcffb", { hex: "61ff62" }],
    ["é\udcc3x", { hex: "c3a9c378" }],
    ["\udce2\udc82", { hex: "e282" }],
    ["\udced\udca0\udc80", { hex: "eda080" }],
  ])("keeps every byte of the path %j", (text, sent) => {
    expect(toPath(text)).toEqual(sent);
    expect(fromPath(sent)).toBe(text);
  });

  it("replaces what no path and no text has", () => {
    expect(toPath("\ud800")).toEqual({ hex: "efbfbd" });
    expect(toText("a\ud800b")).toBe("a\ufffdb");
  });

  it("takes apart and joins paths", () => {
    expect([join("/", "a"), join("/x", "a"), name("/x/a"), name("a")]).toEqual(["/a", "/x/a", "a", "a"]);
  });

  it("sends whole numbers, and times in milliseconds", () => {
    expect([-3, 2.9, Number.POSITIVE_INFINITY, 1e30].map(whole)).toEqual([0, 2, 0, Number.MAX_SAFE_INTEGER]);
    expect([0, 0.0001, 1.001, 5].map(milliseconds)).toEqual([0, 1, 1001, 5000]);
    expect(() => milliseconds(-1)).toThrow("-1 isn't a duration: pass 0 or more seconds");
  });

  it("refuses values of other types", () => {
    // @ts-expect-error: a path is a string
    expect(() => toPath(7)).toThrow(TypeError);
    // @ts-expect-error: a limit is a number
    expect(() => whole("7")).toThrow(TypeError);
  });
});
