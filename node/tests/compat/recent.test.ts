/** What a long-lived client remembers of sandboxes. */

import { expect, it } from "vitest";
import { Recent } from "../../esm/compat/langchain-kubernetes/recent.js";

// A client once kept every sandbox that it had worked in, also when it had ended.
it("drops what wasn't used for longest", () => {
  const recent = new Recent<number>(2);
  recent.set("a", 1);
  recent.set("b", 2);
  recent.set("a", 3);
  recent.set("c", 4);
  expect([recent.get("a"), recent.get("b"), recent.get("c")]).toEqual([3, undefined, 4]);
  recent.delete("a");
  recent.set("d", 5);
  expect([recent.get("a"), recent.get("c"), recent.get("d")]).toEqual([undefined, 4, 5]);
});
