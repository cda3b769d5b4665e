/** The types of operations' options and results, and that no exported type lacks a test. The compiler checks most of this. */

import { readdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type {
  Abortable,
  AuditFunction,
  AuditMeta,
  Cleaned,
  CommandInfo,
  CommandLine,
  CommandOptions,
  DeleteOptions,
  DeleteResult,
  EditOptions,
  EditResult,
  EndEvent,
  Entry,
  ExecEvent,
  FileKind,
  GlobMatch,
  GlobOptions,
  GlobResult,
  GrepMatch,
  GrepOptions,
  GrepResult,
  Listed,
  ListOptions,
  LostEvent,
  LsOptions,
  LsResult,
  Manager,
  ManagerOptions,
  MkdirOptions,
  MkdirResult,
  MoveOptions,
  MoveResult,
  OperationError,
  OperationErrorDetails,
  OutputEvent,
  Page,
  Partial,
  Phase,
  Podbay,
  PodbayOptions,
  PoolStatus,
  Process,
  Progress,
  Protection,
  ProtectionReport,
  ReadBytesOptions,
  ReadOptions,
  RunOptions,
  Sandbox,
  SandboxOptions,
  Settings,
  StartOptions,
  StatOptions,
  Stats,
  TransferOptions,
  TreeEntry,
  TreeOptions,
  TreeResult,
  UploadOptions,
  UploadResult,
  WantedOptions,
  Welcome,
  WriteOptions,
} from "podbay";
import { describe, expect, expectTypeOf, it } from "vitest";

/** The type of a method's parameter. */
type Taken<Method extends keyof Sandbox, Index extends number> = Sandbox[Method] extends (...args: infer All) => unknown
  ? Exclude<All[Index], undefined>
  : never;

describe("types of operations", () => {
  it("has options", () => {
    expectTypeOf<Taken<"read", 1>>().toEqualTypeOf<ReadOptions>();
    expectTypeOf<Taken<"readBytes", 1>>().toEqualTypeOf<ReadBytesOptions>();
    expectTypeOf<Taken<"write", 2>>().toEqualTypeOf<WriteOptions>();
    expectTypeOf<Taken<"edit", 3>>().toEqualTypeOf<EditOptions>();
    expectTypeOf<Taken<"ls", 1>>().toEqualTypeOf<LsOptions>();
    expectTypeOf<Taken<"stat", 1>>().toEqualTypeOf<StatOptions>();
    expectTypeOf<Taken<"glob", 2>>().toEqualTypeOf<GlobOptions>();
    expectTypeOf<Taken<"grep", 2>>().toEqualTypeOf<GrepOptions>();
    expectTypeOf<Taken<"tree", 1>>().toEqualTypeOf<TreeOptions>();
    expectTypeOf<Taken<"delete", 1>>().toEqualTypeOf<DeleteOptions>();
    expectTypeOf<Taken<"mkdir", 1>>().toEqualTypeOf<MkdirOptions>();
    expectTypeOf<Taken<"move", 2>>().toEqualTypeOf<MoveOptions>();
    expectTypeOf<Taken<"upload", 1>>().toEqualTypeOf<UploadOptions>();
    expectTypeOf<Taken<"uploadFile", 2>>().toEqualTypeOf<TransferOptions>();
    expectTypeOf<Taken<"run", 0>>().toEqualTypeOf<CommandLine>();
    expectTypeOf<Taken<"run", 1>>().toEqualTypeOf<RunOptions>();
    expectTypeOf<Taken<"stream", 1>>().toEqualTypeOf<StartOptions>();
    expectTypeOf<Taken<"hello", 0>>().toEqualTypeOf<Abortable>();
    expectTypeOf<RunOptions>().toExtend<CommandOptions>();
    expectTypeOf<StartOptions>().toExtend<CommandOptions>();
    expectTypeOf<CommandOptions>().toExtend<Abortable>();
    expectTypeOf<CommandLine>().toEqualTypeOf<string | readonly string[]>();
    expectTypeOf<TransferOptions["progress"]>().toEqualTypeOf<((progress: Progress) => void) | undefined>();
    expectTypeOf<Abortable["signal"]>().toEqualTypeOf<AbortSignal | undefined>();
  });

  it("has results", () => {
    expectTypeOf<Sandbox["edit"]>().returns.resolves.toEqualTypeOf<EditResult>();
    expectTypeOf<Sandbox["delete"]>().returns.resolves.toEqualTypeOf<DeleteResult>();
    expectTypeOf<Sandbox["mkdir"]>().returns.resolves.toEqualTypeOf<MkdirResult>();
    expectTypeOf<Sandbox["move"]>().returns.resolves.toEqualTypeOf<MoveResult>();
    expectTypeOf<Sandbox["tree"]>().returns.resolves.toEqualTypeOf<TreeResult>();
    expectTypeOf<Sandbox["upload"]>().returns.resolves.toEqualTypeOf<UploadResult[]>();
    expectTypeOf<Sandbox["hello"]>().returns.resolves.toEqualTypeOf<Welcome>();
    expectTypeOf<Sandbox["protections"]>().returns.resolves.toEqualTypeOf<ProtectionReport>();
    expectTypeOf<LsResult["entries"]>().toEqualTypeOf<Entry[]>();
    expectTypeOf<GlobResult["matches"]>().toEqualTypeOf<GlobMatch[]>();
    expectTypeOf<GrepResult["matches"]>().toEqualTypeOf<GrepMatch[]>();
    expectTypeOf<TreeResult["entries"]>().toEqualTypeOf<TreeEntry[]>();
    expectTypeOf<Exclude<GrepResult["partial"], undefined>>().toEqualTypeOf<Partial>();
    expectTypeOf<Entry["kind"]>().toEqualTypeOf<FileKind>();
    expectTypeOf<"file" | "dir" | "link">().toExtend<FileKind>();
    expectTypeOf<ProtectionReport["protections"]>().toEqualTypeOf<Protection[]>();
    expectTypeOf<CommandInfo["processes"]>().toEqualTypeOf<Process[]>();
    expectTypeOf<Process["pid"]>().toBeNumber();
    expectTypeOf<ExecEvent>().toEqualTypeOf<OutputEvent | LostEvent | EndEvent>();
    expectTypeOf<OperationError>().toExtend<Readonly<OperationErrorDetails>>();
  });

  it("has types for many sandboxes", () => {
    expectTypeOf<Podbay["list"]>().parameter(0).toEqualTypeOf<ListOptions | undefined>();
    expectTypeOf<Page["sandboxes"]>().toEqualTypeOf<Listed[]>();
    expectTypeOf<Listed["phase"]>().toEqualTypeOf<Phase>();
    expectTypeOf<Podbay["cleanup"]>().returns.resolves.toEqualTypeOf<Cleaned>();
    expectTypeOf<Podbay["stats"]>().returns.resolves.toEqualTypeOf<Stats>();
    expectTypeOf<Podbay["poolStatus"]>().returns.resolves.toEqualTypeOf<PoolStatus>();
    expectTypeOf<Podbay["sandbox"]>().parameter(0).toEqualTypeOf<WantedOptions | undefined>();
    expectTypeOf<Manager["acquire"]>().returns.resolves.toEqualTypeOf<Sandbox>();
    expectTypeOf<ConstructorParameters<typeof Manager>[1]>().toEqualTypeOf<ManagerOptions | undefined>();
    expectTypeOf<AuditFunction>().parameter(2).toEqualTypeOf<AuditMeta>();
    expectTypeOf<SandboxOptions>().toExtend<PodbayOptions>();
    expectTypeOf<PodbayOptions>().toExtend<Omit<Settings, "strict" | "file">>();
  });

  it("leaves out no exported type", async () => {
    const here = dirname(fileURLToPath(import.meta.url));
    const page = await readFile(join(here, "..", "..", "..", "docs", "reference", "typescript.md"), "utf8");
    const names = [...page.matchAll(/^### (?:class|interface|type) `(\w+)/gm)].map((found) => found[1] ?? "");
    expect(names.length).toBeGreaterThan(90);
    const files = (await readdir(here)).filter((name) => name.endsWith(".test.ts"));
    const tests = (await Promise.all(files.map((name) => readFile(join(here, name), "utf8")))).join("\n");
    // Twice: where it is imported, and where it is used.
    const missing = names.filter((name) => [...tests.matchAll(new RegExp(`\\b${name}\\b`, "g"))].length < 2);
    expect(missing).toEqual([]);
  });
});
