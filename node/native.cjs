"use strict";
// Loads the native module for this platform. It is CommonJS, at the package's root, so that both builds find it.

const { existsSync } = require("node:fs");
const { join } = require("node:path");

/** Whether this Node was built against musl, as on Alpine. */
function isMusl() {
  return process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
}

const platform = `${process.platform}-${process.arch}${isMusl() ? "-musl" : ""}`;
const file = join(__dirname, "binaries", `podbay.${platform}.node`);

if (!existsSync(file)) {
  const fix = "build it with `npm install` in the directory node/ of Podbay's source";
  throw new Error(`this package has no native module for ${platform}: ${fix}`);
}

module.exports = require(file);
