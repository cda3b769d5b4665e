/** The configuration, with the names and defaults of @bitkaio/langchain-kubernetes. */

import type { PodbayOptions } from "../../options.js";

/** The prefix of every label. */
export const LABEL_PREFIX = "langchain-kubernetes.bitkaio.com/";

/** The label of every sandbox of this module, used to list them. */
export const MANAGED_BY: Readonly<Record<string, string>> = { "managed-by": "langchain-kubernetes" };

/** Where sandboxes run. */
export type KubernetesBackend = "agent-sandbox" | "raw";

/** How commands run. */
export interface ExecuteConfig {
  /** `sandbox`, the only container that Podbay's pods have. */
  container: "sandbox";
  /** The shell that runs commands. Default: /bin/sh. */
  shell: string;
  /** Seconds that a command may take. Default: 300. */
  timeoutSeconds: number;
  /** How many bytes of output are returned. Default: 1,000,000. */
  outputLimitBytes: number;
}

/** The configuration of a provider. Only the fields of its mode have an effect. */
export interface KubernetesProviderConfig {
  /** Default: agent-sandbox. */
  mode?: KubernetesBackend | undefined;
  /** Default: deepagents-sandboxes. It has to exist. */
  namespace?: string | undefined;
  /** How long to wait for a sandbox to be ready. Default: 120,000. */
  startupTimeoutMs?: number | undefined;
  /** @deprecated Use `startupTimeoutMs`. */
  startupTimeoutSeconds?: number | undefined;
  /** How long a command may take. Default: 300,000. */
  executeTimeoutMs?: number | undefined;
  /** How commands run; its timeout wins over `executeTimeoutMs`. */
  execConfig?: Partial<ExecuteConfig> | undefined;
  /** Labels of every sandbox. */
  defaultLabels?: Record<string, string> | undefined;
  /** How many seconds a sandbox may live. */
  ttlSeconds?: number | undefined;
  /** How many seconds it may be idle. */
  ttlIdleSeconds?: number | undefined;

  /** The sandbox-router's URL. It is used if there is a `privateKeyFile`; without one Podbay needs no router. */
  routerUrl?: string | undefined;
  /** Podbay's own: the private key that connections through the router need (docs/router.md). */
  privateKeyFile?: string | undefined;
  /** The SandboxTemplate. */
  templateName?: string | undefined;
  /** The port of the stock runtime (docs/runtime.md). Default: 8888. */
  serverPort?: number | undefined;
  /** The SandboxWarmPool to claim from. */
  warmPoolName?: string | undefined;
  /** The API server, in place of the kubeconfig's. */
  kubeApiUrl?: string | undefined;
  /** The bearer token for `kubeApiUrl`. */
  kubeToken?: string | undefined;

  /** Default: python:3.12-slim. */
  image?: string | undefined;
  /** Default: IfNotPresent. */
  imagePullPolicy?: "Always" | "IfNotPresent" | "Never" | undefined;
  /** Names of secrets. */
  imagePullSecrets?: readonly string[] | undefined;
  /** Default: /workspace. */
  workdir?: string | undefined;
  /** Default: `["sleep", "infinity"]`, for which a waiting shell runs that exits on SIGTERM. */
  command?: readonly string[] | undefined;
  /** Environment variables of every command. */
  env?: Record<string, string> | undefined;
  /** Default: 100m. */
  cpuRequest?: string | undefined;
  /** Default: 1000m. */
  cpuLimit?: string | undefined;
  /** Default: 256Mi. */
  memoryRequest?: string | undefined;
  /** Default: 1Gi. */
  memoryLimit?: string | undefined;
  /** Default: 5Gi. */
  ephemeralStorageLimit?: string | undefined;
  /** Default: true. */
  blockNetwork?: boolean | undefined;
  /** Default: 1000. */
  runAsUser?: number | undefined;
  /** Default: 1000. */
  runAsGroup?: number | undefined;
  /** `RuntimeDefault` (the default), or the path of a profile on the node. */
  seccompProfile?: string | undefined;
  /** Give each sandbox its own namespace. */
  namespacePerSandbox?: boolean | undefined;
  /** Labels of such a namespace. */
  namespaceLabels?: Record<string, string> | undefined;
  /** How many pods wait in the warm pool. */
  warmPoolSize?: number | undefined;
  /** The path of a kubeconfig. */
  kubeconfigPath?: string | undefined;
  /** The context in it. */
  context?: string | undefined;
  /** The pod's service account. */
  serviceAccount?: string | undefined;
  /** Which nodes pods may run on. */
  nodeSelector?: Record<string, string> | undefined;
  /** Taints that pods tolerate. */
  tolerations?: readonly Record<string, unknown>[] | undefined;
  /** The pod's volumes. */
  volumes?: readonly Record<string, unknown>[] | undefined;
  /** Where they are mounted. */
  volumeMounts?: readonly Record<string, unknown>[] | undefined;
  /** Containers that run before. */
  initContainers?: readonly Record<string, unknown>[] | undefined;
  /** Merged into the pod's spec; it must not weaken its security. */
  podTemplateOverrides?: Record<string, unknown> | undefined;
  /** Has no effect, as in the original: use `ttlSeconds`. */
  podTtlSeconds?: number | undefined;
}

/** A configuration with its defaults. */
export type ResolvedConfig = typeof defaultConfig & KubernetesProviderConfig;

/** The defaults. */
export const defaultConfig = {
  mode: "agent-sandbox" as KubernetesBackend,
  namespace: "deepagents-sandboxes",
  startupTimeoutMs: 120_000,
  executeTimeoutMs: 300_000,
  serverPort: 8888,
  image: "python:3.12-slim",
  imagePullPolicy: "IfNotPresent" as "Always" | "IfNotPresent" | "Never",
  workdir: "/workspace",
  command: ["sleep", "infinity"] as readonly string[],
  cpuRequest: "100m",
  cpuLimit: "1000m",
  memoryRequest: "256Mi",
  memoryLimit: "1Gi",
  ephemeralStorageLimit: "5Gi",
  blockNetwork: true,
  runAsUser: 1000,
  runAsGroup: 1000,
  seccompProfile: "RuntimeDefault",
  namespacePerSandbox: false,
};

/** The defaults of commands. */
export const defaultExecuteConfig: ExecuteConfig = {
  container: "sandbox",
  shell: "/bin/sh",
  timeoutSeconds: 300,
  outputLimitBytes: 1_000_000,
};

function defined<T extends object>(values: T): T {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as T;
}

/** A configuration with the defaults for what isn't set. */
export function resolveConfig(config: KubernetesProviderConfig = {}): ResolvedConfig {
  const { startupTimeoutSeconds, startupTimeoutMs } = config;
  const old = startupTimeoutSeconds === undefined ? undefined : startupTimeoutSeconds * 1000;
  const timeout = startupTimeoutMs ?? old ?? defaultConfig.startupTimeoutMs;
  const synced = { startupTimeoutMs: timeout, startupTimeoutSeconds: timeout / 1000 };
  return { ...defaultConfig, ...defined(config), ...synced } as ResolvedConfig;
}

/** How commands run, with the defaults for what isn't set. */
export function resolveExecuteConfig(config: Partial<ExecuteConfig> = {}): ExecuteConfig {
  return { ...defaultExecuteConfig, ...defined(config) };
}

/** Throws if something is missing or unknown. */
export function validateConfig(config: KubernetesProviderConfig): void {
  const mode = config.mode ?? defaultConfig.mode;
  if (mode !== "agent-sandbox" && mode !== "raw") {
    throw new Error(`unknown mode "${mode}": use "agent-sandbox" or "raw"`);
  }
  if (mode === "agent-sandbox" && !config.templateName && !config.warmPoolName) {
    throw new Error('mode "agent-sandbox" needs a templateName; mode "raw" runs plain pods without one');
  }
  const { container } = resolveExecuteConfig(config.execConfig);
  if (container !== defaultExecuteConfig.container) {
    throw new Error(`execConfig: there is no container "${container}": commands run in the container "sandbox"`);
  }
}

/**
 * How to reach podbayd. Only a template with a public key lets podbayd listen, and a program that was written for another runtime
 * has no key. So the router is used where the configuration, or the setting `cluster.connection`, says that there is one.
 */
export function router({
  routerUrl,
  privateKeyFile,
  serverPort,
}: Pick<KubernetesProviderConfig, "routerUrl" | "privateKeyFile" | "serverPort">): PodbayOptions {
  const known = routerUrl !== undefined && privateKeyFile !== undefined;
  // The default can't be told from no choice at all, which is left to Podbay's setting.
  const runtimePort = serverPort === defaultConfig.serverPort ? undefined : serverPort;
  return { routerUrl, privateKeyFile, runtimePort, connection: known ? "direct" : undefined };
}

/** The options of Podbay that mean the same. */
export function podbayOptions(config: ResolvedConfig): PodbayOptions {
  const shared: PodbayOptions = {
    mode: config.mode,
    namespace: config.namespace,
    kubeconfig: config.kubeconfigPath,
    context: config.context,
    apiUrl: config.kubeApiUrl,
    token: config.kubeToken,
    env: config.env,
    labelPrefix: LABEL_PREFIX,
    startupTimeout: config.startupTimeoutMs / 1000,
  };
  if (config.mode === "agent-sandbox") {
    const { templateName, warmPoolName } = config;
    return { ...shared, templateName, warmPoolName, ...router(config) };
  }
  const waits = config.command.join(" ") === defaultConfig.command.join(" ");
  const overrides = config.podTemplateOverrides;
  return {
    ...shared,
    image: config.image,
    imagePullPolicy: config.imagePullPolicy,
    imagePullSecrets: config.imagePullSecrets,
    workdir: config.workdir,
    command: waits ? undefined : config.command,
    cpuRequest: config.cpuRequest,
    cpuLimit: config.cpuLimit,
    memoryRequest: config.memoryRequest,
    memoryLimit: config.memoryLimit,
    ephemeralStorageLimit: config.ephemeralStorageLimit,
    blockNetwork: config.blockNetwork,
    runAsUser: config.runAsUser,
    runAsGroup: config.runAsGroup,
    // The group that can write to the working directory, which used to belong to root.
    fsGroup: config.runAsGroup,
    seccompProfile: config.seccompProfile,
    namespacePerSandbox: config.namespacePerSandbox,
    namespaceLabels: config.namespaceLabels,
    namespaceQuota: config.namespacePerSandbox ? quota(config) : undefined,
    warmPoolSize: config.warmPoolSize,
    serviceAccount: config.serviceAccount,
    nodeSelector: config.nodeSelector,
    tolerations: config.tolerations,
    volumes: config.volumes,
    volumeMounts: config.volumeMounts,
    initContainers: config.initContainers,
    podTemplateOverrides: overrides === undefined ? undefined : { spec: overrides },
  };
}

/** What a namespace of one sandbox may use. */
function quota(config: ResolvedConfig): Record<string, string> {
  return {
    pods: "1",
    "requests.cpu": config.cpuRequest,
    "requests.memory": config.memoryRequest,
    "limits.cpu": config.cpuLimit,
    "limits.memory": config.memoryLimit,
    "requests.ephemeral-storage": config.ephemeralStorageLimit,
  };
}

/** A label's key without the prefix, which is a setting of Podbay. */
export function withoutPrefix(key: string): string {
  return key.startsWith(LABEL_PREFIX) ? key.slice(LABEL_PREFIX.length) : key;
}

/** The labels of a new sandbox. Later ones override earlier ones, except for managed-by. */
export function labelsOf(...all: (Record<string, string> | undefined)[]): Record<string, string> {
  const merged = Object.entries(Object.assign({}, ...all) as Record<string, string>);
  return { ...Object.fromEntries(merged.map(([key, value]) => [withoutPrefix(key), value])), ...MANAGED_BY };
}
