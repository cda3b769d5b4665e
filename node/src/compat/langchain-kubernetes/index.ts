/** The names of @bitkaio/langchain-kubernetes, on Podbay. docs/moving/bitkaio-langchain-kubernetes.md says what changes. */

export {
  defaultConfig,
  defaultExecuteConfig,
  type ExecuteConfig,
  type KubernetesBackend,
  type KubernetesProviderConfig,
  resolveConfig,
  resolveExecuteConfig,
  validateConfig,
} from "./config.js";
export {
  MissingDependencyError,
  NamespaceConflictError,
  SandboxError,
  SandboxExecError,
  SandboxNotFoundError,
  SandboxRouterError,
  SandboxStartupTimeoutError,
  TemplateNotFoundError,
} from "./errors.js";
export { KubernetesSandboxManager, type KubernetesSandboxManagerOptions } from "./manager.js";
export {
  type CleanupResult,
  type GetOrCreateOptions,
  KubernetesProvider,
  KubernetesSandbox,
  type KubernetesSandboxOptions,
  type ProviderStats,
  type SandboxInfo,
  type SandboxListResponse,
  type WarmPoolStatus,
} from "./provider.js";
export {
  type RouterSandboxInfo,
  type RunResult,
  SandboxRouterClient,
  type SandboxRouterClientOptions,
} from "./router-client.js";
