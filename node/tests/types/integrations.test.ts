/** The types of podbay/deepagents, podbay/langgraph and podbay/compat/langchain-kubernetes. The compiler checks them. */

import type { StructuredToolInterface } from "@langchain/core/tools";
import type { BaseSandbox, createDeepAgent } from "deepagents";
import type { Abortable, Podbay } from "podbay";
import type {
  CleanupResult,
  ExecuteConfig,
  GetOrCreateOptions,
  KubernetesBackend,
  KubernetesProvider,
  KubernetesProviderConfig,
  KubernetesSandbox,
  KubernetesSandboxManager,
  KubernetesSandboxManagerOptions,
  KubernetesSandboxOptions,
  ProviderStats,
  RouterSandboxInfo,
  RunResult,
  SandboxInfo,
  SandboxListResponse,
  SandboxRouterClient,
  SandboxRouterClientOptions,
  WarmPoolStatus,
} from "podbay/compat/langchain-kubernetes";
import type { PodbaySandbox, PodbaySandboxOptions } from "podbay/deepagents";
import { type AsyncPodbaySandboxFactory, createPodbaySandboxFactory, type ExecuteOptions } from "podbay/deepagents";
import {
  type Agent,
  type AgentModel,
  type AgentOptions,
  type ExecutePythonOptions,
  executePythonTool,
  type Node,
  type SandboxManager,
  type SandboxManagerOptions,
  seedFiles,
  type VirtualFile,
} from "podbay/langgraph";
import { describe, expectTypeOf, it } from "vitest";

describe("types", () => {
  it("of podbay/deepagents", () => {
    expectTypeOf<PodbaySandbox>().toExtend<BaseSandbox>();
    expectTypeOf<PodbaySandbox["execute"]>().parameter(1).toEqualTypeOf<ExecuteOptions | undefined>();
    expectTypeOf<ExecuteOptions>().toExtend<Abortable>();
    expectTypeOf(createPodbaySandboxFactory).returns.toEqualTypeOf<AsyncPodbaySandboxFactory>();
    expectTypeOf<AsyncPodbaySandboxFactory>().returns.resolves.toEqualTypeOf<PodbaySandbox>();
    expectTypeOf(createPodbaySandboxFactory).parameter(0).toEqualTypeOf<PodbaySandboxOptions | undefined>();
  });

  it("of podbay/langgraph", () => {
    expectTypeOf<ConstructorParameters<typeof SandboxManager>[0]>().toEqualTypeOf<SandboxManagerOptions | undefined>();
    expectTypeOf<SandboxManagerOptions["provider"]>().toEqualTypeOf<Podbay | undefined>();
    expectTypeOf<SandboxManager["createAgent"]>().parameters.toEqualTypeOf<[AgentModel, (AgentOptions | undefined)?]>();
    expectTypeOf<Agent>().toEqualTypeOf<ReturnType<typeof createDeepAgent>>();
    expectTypeOf<"anthropic:claude-sonnet-4-6">().toExtend<AgentModel>();
    expectTypeOf<SandboxManager["createSetupNode"]>().returns.toEqualTypeOf<Node>();
    expectTypeOf(executePythonTool).parameters.toEqualTypeOf<[(ExecutePythonOptions | undefined)?]>();
    expectTypeOf(executePythonTool).returns.toEqualTypeOf<StructuredToolInterface>();
    expectTypeOf(seedFiles).parameter(0).toEqualTypeOf<Record<string, VirtualFile> | undefined>();
  });

  it("of podbay/compat/langchain-kubernetes", () => {
    expectTypeOf<KubernetesSandbox>().toExtend<BaseSandbox>();
    expectTypeOf<KubernetesSandboxOptions>().toExtend<PodbaySandboxOptions>();
    expectTypeOf<KubernetesProvider["getOrCreate"]>().parameters.toEqualTypeOf<
      [(string | GetOrCreateOptions | undefined)?]
    >();
    expectTypeOf<KubernetesProvider["getOrCreate"]>().returns.resolves.toEqualTypeOf<KubernetesSandbox>();
    expectTypeOf<KubernetesProvider["list"]>().returns.resolves.toEqualTypeOf<SandboxListResponse>();
    expectTypeOf<SandboxListResponse["sandboxes"]>().toEqualTypeOf<SandboxInfo[]>();
    expectTypeOf<KubernetesProvider["cleanup"]>().returns.resolves.toEqualTypeOf<CleanupResult>();
    expectTypeOf<KubernetesProvider["stats"]>().returns.resolves.toEqualTypeOf<ProviderStats>();
    expectTypeOf<KubernetesProvider["poolStatus"]>().returns.resolves.toEqualTypeOf<WarmPoolStatus>();
    expectTypeOf<KubernetesProviderConfig["mode"]>().toEqualTypeOf<KubernetesBackend | undefined>();
    expectTypeOf<KubernetesBackend>().toEqualTypeOf<"agent-sandbox" | "raw">();
    expectTypeOf<ExecuteConfig["timeoutSeconds"]>().toBeNumber();
    expectTypeOf<ConstructorParameters<typeof KubernetesSandboxManager>>().toEqualTypeOf<
      [(KubernetesProviderConfig | undefined)?, (KubernetesSandboxManagerOptions | undefined)?]
    >();
    expectTypeOf<KubernetesSandboxManager>().toExtend<AsyncDisposable>();
    expectTypeOf<ConstructorParameters<typeof SandboxRouterClient>>().toEqualTypeOf<
      [string, (SandboxRouterClientOptions | undefined)?]
    >();
    expectTypeOf<SandboxRouterClient["run"]>().returns.resolves.toEqualTypeOf<RunResult>();
    expectTypeOf<SandboxRouterClient["status"]>().returns.resolves.toEqualTypeOf<RouterSandboxInfo>();
  });
});
