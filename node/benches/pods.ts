/** The backends to compare, each in its own pod, with the same image and limits. */

import { randomUUID } from "node:crypto";
import { Readable, Writable } from "node:stream";
import { setTimeout } from "node:timers/promises";
import { CoreV1Api, Exec, KubeConfig, type V1Status } from "@kubernetes/client-node";
import { BaseSandbox, type ExecuteResponse, type FileDownloadResponse, type FileUploadResponse } from "deepagents";
import { PodbaySandbox } from "podbay/deepagents";

const LIMITS = { cpuRequest: "100m", cpuLimit: "1000m", memoryRequest: "64Mi", memoryLimit: "512Mi" };

/** Podbay's backend. */
export function podbay(image: string, namespace: string): Promise<PodbaySandbox> {
  return PodbaySandbox.create({ mode: "raw", image, namespace, ttl: "1h", ...LIMITS });
}

function quoted(path: string): string {
  return `'${path.replaceAll("'", "'\\''")}'`;
}

/** Deep Agents' scripts over the official Kubernetes client: one pod exec for each command and each batch of files. */
export class ExecSandbox extends BaseSandbox implements AsyncDisposable {
  readonly #cluster: KubeConfig;
  readonly #namespace: string;
  readonly id = `bench-scripts-${randomUUID().slice(0, 8)}`;

  private constructor(cluster: KubeConfig, namespace: string) {
    super();
    this.#cluster = cluster;
    this.#namespace = namespace;
  }

  static async create(image: string, namespace: string): Promise<ExecSandbox> {
    const cluster = new KubeConfig();
    cluster.loadFromDefault();
    const sandbox = new ExecSandbox(cluster, namespace);
    await sandbox.#start(image);
    return sandbox;
  }

  async #start(image: string): Promise<void> {
    const pods = this.#cluster.makeApiClient(CoreV1Api);
    const [namespace, name] = [this.#namespace, this.id];
    await pods.createNamespacedPod({
      namespace,
      body: {
        metadata: { name },
        spec: {
          terminationGracePeriodSeconds: 0,
          automountServiceAccountToken: false,
          securityContext: { runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000 },
          volumes: [{ name: "work", emptyDir: {} }],
          containers: [
            {
              name: "sandbox",
              image,
              imagePullPolicy: "IfNotPresent",
              command: ["sleep", "infinity"],
              workingDir: "/workspace",
              volumeMounts: [{ name: "work", mountPath: "/workspace" }],
              resources: {
                limits: { cpu: LIMITS.cpuLimit, memory: LIMITS.memoryLimit },
                requests: { cpu: LIMITS.cpuRequest, memory: LIMITS.memoryRequest },
              },
            },
          ],
        },
      },
    });
    for (let tries = 0; tries < 600; tries++) {
      const { status } = await pods.readNamespacedPod({ name, namespace });
      if (status?.phase === "Running") {
        return;
      }
      await setTimeout(100);
    }
    throw new Error(`the pod ${name} doesn't start`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const pods = this.#cluster.makeApiClient(CoreV1Api);
    await pods.deleteNamespacedPod({ name: this.id, namespace: this.#namespace, gracePeriodSeconds: 0 });
  }

  override async execute(command: string): Promise<ExecuteResponse> {
    const { output, exitCode } = await this.#exec(command);
    return { output: output.toString(), exitCode, truncated: false };
  }

  /** Only for batches that succeed or fail as a whole, as those of the benchmark. */
  override async uploadFiles(files: Array<[string, Uint8Array]>): Promise<FileUploadResponse[]> {
    const steps = files.map(
      ([path, content]) => `mkdir -p "$(dirname ${quoted(path)})" && head -c ${content.length} > ${quoted(path)}`,
    );
    const { exitCode } = await this.#exec(steps.join(" && "), Buffer.concat(files.map(([, content]) => content)));
    return files.map(([path]) => ({ path, error: exitCode === 0 ? null : "invalid_path" }));
  }

  /** As `uploadFiles`. Each file's size comes before its contents. */
  override async downloadFiles(paths: string[]): Promise<FileDownloadResponse[]> {
    const steps = paths.map((path) => `wc -c < ${quoted(path)} && cat ${quoted(path)}`);
    let { output, exitCode } = await this.#exec(steps.join(" && "));
    return paths.map((path) => {
      if (exitCode !== 0) {
        return { path, content: null, error: "file_not_found" };
      }
      const line = output.indexOf("\n");
      const end = line + 1 + Number(output.subarray(0, line).toString());
      const content = output.subarray(line + 1, end);
      output = output.subarray(end);
      return { path, content, error: null };
    });
  }

  async #exec(command: string, input?: Buffer): Promise<{ output: Buffer; exitCode: number }> {
    const pieces: Buffer[] = [];
    const sink = () =>
      new Writable({
        write(piece: Buffer, _, done) {
          pieces.push(piece);
          done();
        },
      });
    const stdin = input === undefined ? null : Readable.from([input]);
    const line = ["/bin/sh", "-c", command];
    const status = await new Promise<V1Status>((resolve, reject) => {
      const exec = new Exec(this.#cluster);
      exec.exec(this.#namespace, this.id, "sandbox", line, sink(), sink(), stdin, false, resolve).catch(reject);
    });
    const code = status.details?.causes?.find((cause) => cause.reason === "ExitCode")?.message;
    const exitCode = status.status === "Success" ? 0 : Number(code ?? -1);
    return { output: Buffer.concat(pieces), exitCode };
  }
}
