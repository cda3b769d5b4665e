/** The public types, checked by the compiler: `tsc --noEmit` reads this file too. */

import type { SandboxBackendProtocolV2 } from "deepagents";
import {
  type AuditFunction,
  type CommandInfo,
  type ConfigError,
  type DownloadResult,
  type Exec,
  type ExecEvent,
  type ExecResult,
  type GlobResult,
  type GrepResult,
  type LsResult,
  type NotFound,
  type OperationError,
  type Page,
  Podbay,
  type PodbayError,
  Provider,
  type ReadResult,
  type Sandbox,
  type SandboxOptions,
  SETTINGS,
  type Setting,
  type StatResult,
  type Transferred,
  type WriteResult,
} from "podbay";
import type { PodbaySandbox, PodbaySandboxOptions } from "podbay/deepagents";
import type { Agent, SandboxManager } from "podbay/langgraph";
import { describe, expectTypeOf, it } from "vitest";

describe("types", () => {
  it("describe results", () => {
    expectTypeOf<Sandbox["run"]>().returns.resolves.toEqualTypeOf<ExecResult>();
    expectTypeOf<Sandbox["read"]>().returns.resolves.toEqualTypeOf<ReadResult>();
    expectTypeOf<Sandbox["write"]>().returns.resolves.toEqualTypeOf<WriteResult>();
    expectTypeOf<Sandbox["ls"]>().returns.resolves.toEqualTypeOf<LsResult>();
    expectTypeOf<Sandbox["stat"]>().returns.resolves.toEqualTypeOf<StatResult>();
    expectTypeOf<Sandbox["glob"]>().returns.resolves.toEqualTypeOf<GlobResult>();
    expectTypeOf<Sandbox["grep"]>().returns.resolves.toEqualTypeOf<GrepResult>();
    expectTypeOf<Sandbox["download"]>().returns.resolves.toEqualTypeOf<DownloadResult[]>();
    expectTypeOf<Sandbox["uploadTree"]>().returns.resolves.toEqualTypeOf<Transferred>();
    expectTypeOf<Sandbox["commands"]>().returns.resolves.toEqualTypeOf<CommandInfo[]>();
    expectTypeOf<Podbay["list"]>().returns.resolves.toEqualTypeOf<Page>();
    expectTypeOf<ExecResult["exitCode"]>().toEqualTypeOf<number | undefined>();
    expectTypeOf(SETTINGS).toEqualTypeOf<readonly Setting[]>();
  });

  it("tell events apart", () => {
    expectTypeOf<Exec>().toExtend<AsyncIterable<ExecEvent>>();
    const seen = (event: ExecEvent): number | undefined => {
      switch (event.kind) {
        case "output":
          return event.data.length;
        case "lost":
          return event.bytes;
        case "end":
          return event.info.exitCode;
      }
    };
    expectTypeOf(seen).returns.toEqualTypeOf<number | undefined>();
  });

  it("know settings, and reject what isn't one", () => {
    const options: SandboxOptions = {
      mode: "raw",
      image: "x",
      cpuLimit: "1",
      ttl: "2h",
      "raw.image": "y",
      tenant: "t",
    };
    expectTypeOf(options.mode).toEqualTypeOf<"local" | "raw" | "agent-sandbox" | undefined>();
    // @ts-expect-error: no such mode
    const mode: SandboxOptions = { mode: "moon" };
    // @ts-expect-error: no such setting
    const setting: SandboxOptions = { imagge: "x" };
    expectTypeOf([mode, setting]).items.toEqualTypeOf<SandboxOptions>();
    expectTypeOf<AuditFunction>().parameter(0).toEqualTypeOf<string>();
    expectTypeOf(Provider).toEqualTypeOf(Podbay);
  });

  it("make errors a family", () => {
    expectTypeOf<NotFound>().toExtend<OperationError>();
    expectTypeOf<OperationError>().toExtend<PodbayError>();
    expectTypeOf<ConfigError>().toExtend<Error>();
    expectTypeOf<PodbayError["code"]>().toEqualTypeOf<string>();
    expectTypeOf<NotFound["path"]>().toEqualTypeOf<string | undefined>();
  });

  it("make the backend one of Deep Agents", () => {
    expectTypeOf<PodbaySandbox>().toExtend<SandboxBackendProtocolV2>();
    expectTypeOf<PodbaySandbox>().toExtend<AsyncDisposable>();
    expectTypeOf<PodbaySandboxOptions>().toExtend<SandboxOptions>();
    expectTypeOf<Sandbox>().toExtend<AsyncDisposable>();
    expectTypeOf<SandboxManager["createAgent"]>().returns.toEqualTypeOf<Agent>();
  });
});
