// Builds the package: the native module with podbayd inside, then the TypeScript twice, as ES modules and as CommonJS.
//
// `--profile NAME` chooses cargo's profile (release unless given); `--no-native` leaves the native module as it is.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: given } = parseArgs({
  options: { profile: { type: "string", default: "release" }, "no-native": { type: "boolean" } },
});
const root = dirname(dirname(fileURLToPath(import.meta.url)));

function run(program, args) {
  execFileSync(program, args, { cwd: root, stdio: "inherit" });
}

/** Where cargo put the library; it says so in its messages. */
function compiled() {
  const args = ["build", "--package", "podbay-node", "--profile", given.profile];
  args.push("--message-format", "json-render-diagnostics");
  const stdio = ["ignore", "pipe", "inherit"];
  const messages = execFileSync("cargo", args, { cwd: root, stdio, encoding: "utf8", maxBuffer: 1 << 28 });
  for (const line of messages.split("\n").filter((line) => line.startsWith("{"))) {
    const message = JSON.parse(line);
    if (message.reason === "compiler-artifact" && message.target.name === "podbay_node") {
      return message.filenames.find((file) => /\.(so|dylib|dll)$/.test(file));
    }
  }
  throw new Error("cargo built no library");
}

if (!given["no-native"]) {
  const musl = process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
  const platform = `${process.platform}-${process.arch}${musl ? "-musl" : ""}`;
  mkdirSync(join(root, "binaries"), { recursive: true });
  const binary = join(root, "binaries", `podbay.${platform}.node`);
  // Renamed into place: a process that has the old one loaded must keep it.
  copyFileSync(compiled(), `${binary}.new`);
  renameSync(`${binary}.new`, binary);
}

const tsc = join(root, "node_modules", "typescript", "bin", "tsc");
for (const [format, type] of [
  ["esm", "module"],
  ["cjs", "commonjs"],
]) {
  rmSync(join(root, format), { recursive: true, force: true });
  run(process.execPath, [tsc, "--project", `tsconfig.${format}.json`]);
  writeFileSync(join(root, format, "package.json"), `${JSON.stringify({ type })}\n`);
}
