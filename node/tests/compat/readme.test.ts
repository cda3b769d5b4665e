/** One test for each section of the README of @bitkaio/langchain-kubernetes, with only the import changed. */

import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { get } from "node:https";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import { tool } from "@langchain/core/tools";
import { END, MemorySaver, MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { BaseSandbox, createDeepAgent } from "deepagents";
import express from "express";
import {
  defaultConfig,
  KubernetesProvider,
  type KubernetesProviderConfig,
  KubernetesSandbox,
  KubernetesSandboxManager,
  MissingDependencyError,
  resolveConfig,
  resolveExecuteConfig,
  SandboxError,
  SandboxNotFoundError,
  SandboxRouterClient,
  SandboxRouterError,
  SandboxStartupTimeoutError,
  TemplateNotFoundError,
  validateConfig,
} from "podbay/compat/langchain-kubernetes";
import { afterAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { podbayOptions } from "../../esm/compat/langchain-kubernetes/config.js";
import { content, ScriptedModel } from "../scripted.js";

const cluster = process.env["TEST_ON_CLUSTER"] !== undefined;

/** The namespace of the account: without it, it would be the README's. */
function namespace(): string {
  const file = process.env["KUBECONFIG"];
  const account = cluster && file !== undefined ? JSON.parse(readFileSync(file, "utf8")) : undefined;
  return account?.contexts[0].context.namespace ?? "default";
}

/** What the API server has at a path, asked without Podbay. */
// biome-ignore lint/suspicious/noExplicitAny: an object of Kubernetes
async function seen(account: any, path: string): Promise<any> {
  const { server, "certificate-authority-data": authority } = account.clusters[0].cluster;
  const headers = { authorization: `Bearer ${account.users[0].user.token}` };
  const request = get(new URL(path, server), { ca: Buffer.from(authority, "base64"), headers });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return json(response);
}

/** What the test cluster needs beside what the README writes: its image, its account's namespace, small pods. */
const raw: KubernetesProviderConfig = {
  mode: "raw",
  image: "localhost/debian:1",
  imagePullPolicy: "Never",
  memoryRequest: "16Mi",
  cpuRequest: "10m",
  ttlSeconds: 600,
  namespace: namespace(),
};

/** Claims, with a router that nothing asks: there is no key. */
const claims: KubernetesProviderConfig = {
  mode: "agent-sandbox",
  routerUrl: "http://sandbox-router-svc.default.svc.cluster.local:8080",
  templateName: "podbay-tests",
  warmPoolName: "podbay-tests",
  ttlSeconds: 600,
  namespace: namespace(),
};

/** Claims through the router, at a forwarded port as in "Local development". */
const routed: KubernetesProviderConfig = {
  mode: "agent-sandbox",
  routerUrl: process.env["TEST_ROUTER_URL"],
  privateKeyFile: process.env["TEST_ROUTER_KEY"],
  templateName: "podbay-routed",
  ttlSeconds: 600,
  namespace: namespace(),
};

const places: [string, KubernetesProviderConfig][] = [
  ["raw", raw],
  ["agent-sandbox", claims],
  ["agent-sandbox through the router", routed],
];

/** The pools' sizes, by their templates. */
const TARGETS: Record<string, number> = { "podbay-tests": 2, "podbay-routed": 1 };
const ask = { messages: [{ role: "user", content: "go" }] };

describe("the configuration", () => {
  it("has the documented defaults", () => {
    expect(defaultConfig).toMatchObject({
      mode: "agent-sandbox",
      namespace: "deepagents-sandboxes",
      startupTimeoutMs: 120_000,
      executeTimeoutMs: 300_000,
      serverPort: 8888,
      image: "python:3.12-slim",
      workdir: "/workspace",
      command: ["sleep", "infinity"],
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
    });
    expect(resolveConfig({ startupTimeoutSeconds: 7 })).toMatchObject({
      startupTimeoutMs: 7000,
      startupTimeoutSeconds: 7,
    });
    expect(resolveExecuteConfig({ timeoutSeconds: 5 })).toMatchObject({
      timeoutSeconds: 5,
      outputLimitBytes: 1_000_000,
    });
  });

  it("is translated to Podbay's settings", () => {
    const own = podbayOptions(resolveConfig({ ...raw, namespacePerSandbox: true, namespaceLabels: { a: "b" } }));
    expect(own).toMatchObject({ namespacePerSandbox: true, namespaceLabels: { a: "b" }, startupTimeout: 120 });
    expect(own.namespaceQuota).toMatchObject({ pods: "1", "limits.memory": "1Gi", "requests.cpu": "10m" });
    expect(podbayOptions(resolveConfig(raw)).namespaceQuota).toBeUndefined();
    const there = { mode: "agent-sandbox", templateName: "t", routerUrl: "http://router" } as const;
    expect(podbayOptions(resolveConfig(there))).toMatchObject({ routerUrl: "http://router", connection: undefined });
    expect(podbayOptions(resolveConfig({ ...there, privateKeyFile: "/key" })).connection).toBe("direct");
    expect(podbayOptions(resolveConfig({ ...there, serverPort: 9000 })).runtimePort).toBe(9000);
    expect(podbayOptions(resolveConfig(there)).runtimePort).toBeUndefined();
  });

  it("is checked by the constructor", () => {
    expect(() => new KubernetesProvider({})).toThrow(/templateName/);
    expect(() => validateConfig({ mode: "moon" as "raw" })).toThrow(/unknown mode/);
    expect(() => validateConfig({ ...raw, execConfig: { container: "other" as "sandbox" } })).toThrow(/execConfig/);
    expect(
      () => new KubernetesProvider({ mode: "agent-sandbox", routerUrl: "http://x", templateName: "t" }),
    ).not.toThrow();
  });
});

describe.skipIf(!cluster).each(places)("on a cluster, %s", (_, config) => {
  const provider = new KubernetesProvider(config);
  const made: string[] = [];
  afterAll(() => Promise.all(made.map((id) => provider.delete(id))));

  it("Quick start; Sandbox API", async () => {
    const sandbox = await provider.getOrCreate();
    expect(sandbox).toBeInstanceOf(BaseSandbox);
    expect(sandbox).toBeInstanceOf(KubernetesSandbox);
    const active: string[] = [];
    sandbox.setActivityCallback((id) => active.push(id));
    const result = await sandbox.execute("python3 -c 'print(2 + 2)'");
    expect([result.output, result.exitCode, result.truncated]).toEqual(["4\n", 0, false]);
    expect(active).toEqual([sandbox.id]);
    const files: [string, Uint8Array][] = [["/workspace/data.json", Buffer.from('{"key": "value"}')]];
    expect((await sandbox.uploadFiles(files))[0]?.error).toBeNull();
    const downloads = await sandbox.downloadFiles(["/workspace/data.json", "/workspace/none"]);
    expect(Buffer.from(downloads[0]?.content ?? []).toString()).toBe('{"key": "value"}');
    expect(downloads[1]?.error).toBe("file_not_found");
    expect((await sandbox.ls("/workspace")).files?.map((file) => file.path)).toEqual(["/workspace/data.json"]);
    await provider.delete(sandbox.id);
    await provider.delete(sandbox.id);
    await expect(provider.reconnect(sandbox.id)).rejects.toThrow(SandboxNotFoundError);
  }, 60_000);

  it("One-shot usage", async () => {
    const sandbox = await provider.getOrCreate();
    made.push(sandbox.id);
    const model = new ScriptedModel([[{ name: "execute", args: { command: "echo ran" } }], "done"]);
    const { messages } = await createDeepAgent({ model, backend: sandbox }).invoke(ask);
    expect(content(messages.at(-2))).toMatch(/^ran/);
  }, 60_000);

  it("Behind Express / Hono", async () => {
    await using manager = new KubernetesSandboxManager(config, { ttlIdleSeconds: 1800 });
    const model = new ScriptedModel([
      [{ name: "execute", args: { command: "echo kept > x" } }],
      "noted",
      [{ name: "execute", args: { command: "cat x" } }],
      "done",
    ]);
    const agent = await manager.createAgent(model, { checkpointer: new MemorySaver() });
    const app = express();
    app.use(express.json());
    app.post("/chat/:threadId", async (req, res) => {
      const result = await agent.invoke(
        { messages: [{ role: "user", content: req.body.message }] },
        { configurable: { thread_id: req.params.threadId } },
      );
      res.json({ reply: result.messages.at(-1)?.content });
    });
    const server = app.listen(0);
    await once(server, "listening");
    const url = `http://localhost:${(server.address() as AddressInfo).port}/chat/a`;
    const headers = { "content-type": "application/json" };
    const say = async (message: string) =>
      (await fetch(url, { method: "POST", headers, body: JSON.stringify({ message }) })).json();
    expect(await say("Remember")).toEqual({ reply: "noted" });
    expect(await say("What was it?")).toEqual({ reply: "done" });
    expect(content(model.heard.at(-1)?.at(-1))).toMatch(/^kept/);
    server.closeAllConnections();
    server.close();
  }, 60_000);

  it("Multi-turn: createAgent, createSetupNode, createAgentNode, getOrReconnect, shutdown", async () => {
    const defaultLabels = { app: `node-${process.pid}` };
    const manager = new KubernetesSandboxManager(config, { ttlIdleSeconds: 600, defaultLabels });
    const script = [
      [{ name: "write_file", args: { file_path: "/workspace/x", content: "kept" } }],
      "done",
      [{ name: "execute", args: { command: "cat x" } }],
      "done",
    ];
    const agent = await manager.createAgent(new ScriptedModel(script), { checkpointer: new MemorySaver() });
    const thread = { configurable: { thread_id: "t" } };
    const first = (await agent.invoke(ask, thread)) as Record<string, unknown>;
    const second = await agent.invoke(ask, thread);
    expect(content(second.messages.at(-2))).toMatch(/^kept/);
    const { sandboxes } = await provider.list({ labels: defaultLabels, status: "running" });
    expect(sandboxes).toMatchObject([{ id: first["sandboxId"], phase: "Running", status: "running" }]);
    expect(sandboxes[0]?.labels).toMatchObject({ "langchain-kubernetes.bitkaio.com/app": defaultLabels.app });
    expect((await provider.stats()).threadIds).toBeGreaterThan(0);

    const graph = new StateGraph(MessagesAnnotation)
      .addNode("setup", async (state, given) => {
        await manager.createSetupNode()(state, given);
        return {};
      })
      .addNode("agent", async (state, given) => {
        const node = manager.createAgentNode(
          new ScriptedModel([[{ name: "execute", args: { command: "cat x" } }], "end"]),
        );
        const { messages } = await node(state, given);
        return { messages } as typeof state;
      })
      .addEdge(START, "setup")
      .addEdge("setup", "agent")
      .addEdge("agent", END)
      .compile();
    const result = await graph.invoke(ask, thread);
    expect(content(result.messages.at(-2))).toMatch(/^kept/);

    const found = await manager.getOrReconnect(String(first["sandboxId"]));
    expect(found.id).toBe(first["sandboxId"]);
    expect((await manager.getOrReconnect("pb-gone")).id).not.toBe(found.id);
    await manager.shutdown();
    expect((await provider.list({ labels: defaultLabels })).sandboxes).toEqual([]);
  }, 120_000);

  it("Custom systemPrompt and tools", async () => {
    await using manager = new KubernetesSandboxManager(config);
    const model = new ScriptedModel([[{ name: "shout", args: { text: "hello" } }], "done"]);
    const shout = tool(({ text }) => text.toUpperCase(), {
      name: "shout",
      description: "Says it louder",
      schema: z.object({ text: z.string() }),
    });
    const agent = await manager.createAgent(model, {
      checkpointer: new MemorySaver(),
      systemPrompt: "You are a data analyst. Always save outputs to /workspace/output/.",
      tools: [shout],
    });
    const { messages } = await agent.invoke(ask, { configurable: { thread_id: "prompt" } });
    expect(content(messages.at(-2))).toBe("HELLO");
    expect(content(model.heard[0]?.[0])).toContain("You are a data analyst.");
    expect(model.offered[0]).toEqual(expect.arrayContaining(["shout", "execute"]));
  }, 60_000);

  it("Sandbox lifecycle management: labels, TTLs, pages, cleanup, pool", async () => {
    const sandbox = await provider.getOrCreate({ labels: { customer: "acme" }, ttlSeconds: 3600, ttlIdleSeconds: 600 });
    made.push(sandbox.id);
    expect((await provider.getOrCreate({ sandboxId: sandbox.id })).id).toBe(sandbox.id);
    expect((await provider.getOrCreate(sandbox.id)).id).toBe(sandbox.id);
    const { sandboxes } = await provider.list({ labels: { customer: "acme" } });
    expect(sandboxes.map((listed) => listed.id)).toEqual([sandbox.id]);
    expect((await provider.cleanup()).kept).toBeGreaterThan(0);
    expect((await provider.poolStatus()).target).toBe(TARGETS[config.templateName ?? ""] ?? 0);
  }, 60_000);

  it("takes no id of something that Podbay didn't make", async () => {
    for (const id of ["kube-system/etcd", "default/../secrets", "sandbox-router-svc", "PB-UPPER", ""]) {
      await expect(provider.reconnect(id), id).rejects.toThrow();
      await provider.delete(id).catch(() => {});
    }
  }, 60_000);
});

describe.skipIf(!cluster)("on a cluster", () => {
  it("runs as the user that the README names", async () => {
    const provider = new KubernetesProvider(raw);
    const sandbox = await provider.getOrCreate();
    expect((await sandbox.execute("id -u; id -g; echo x > /workspace/x && cat /workspace/x")).output).toBe(
      "1000\n1000\nx\n",
    );
    await provider.delete(sandbox.id);
  }, 60_000);

  it("runs commands by another shell", async () => {
    const provider = new KubernetesProvider({ ...raw, execConfig: { shell: "/bin/bash", timeoutSeconds: 5 } });
    const sandbox = await provider.getOrCreate();
    const result = await sandbox.execute('[[ abc == a* ]] && echo "it\'s" bash; exit 3');
    expect([result.output, result.exitCode]).toEqual(["it's bash\n", 3]);
    await provider.delete(sandbox.id);
  }, 60_000);

  it("gives a sandbox a namespace with labels and a quota", async () => {
    const kubeconfigPath = process.env["TEST_WIDE_KUBECONFIG"] ?? "";
    const account = JSON.parse(readFileSync(kubeconfigPath, "utf8"));
    const home: string = account.contexts[0].context.namespace;
    const namespaceLabels = { "pod-security.kubernetes.io/enforce": "restricted" };
    const own = { ...raw, kubeconfigPath, namespace: home, namespacePerSandbox: true, namespaceLabels };
    const provider = new KubernetesProvider(own);
    const sandbox = await provider.getOrCreate();
    try {
      expect((await sandbox.execute("echo apart")).output).toBe("apart\n");
      const query = `labelSelector=${encodeURIComponent(`podbay.dev/home=${home}`)}`;
      const { items } = await seen(account, `/api/v1/namespaces?${query}`);
      expect(items).toMatchObject([{ metadata: { labels: namespaceLabels } }]);
      // An account of the tests' own: Podbay never lists quotas.
      const harness = JSON.parse(readFileSync(process.env["TEST_HARNESS_KUBECONFIG"] ?? "", "utf8"));
      const quotas = await seen(harness, `/api/v1/namespaces/${items[0].metadata.name}/resourcequotas`);
      const hard = { pods: "1", "limits.memory": "1Gi", "limits.cpu": "1", "requests.memory": "16Mi" };
      expect(quotas.items).toMatchObject([{ spec: { hard } }]);
    } finally {
      await provider.delete(sandbox.id);
    }
  }, 120_000);

  it("Warm pool configuration: raw mode", async () => {
    const provider = new KubernetesProvider({ ...raw, warmPoolSize: 1 });
    const first = await provider.getOrCreate();
    await expect.poll(() => provider.poolStatus(), { timeout: 60_000 }).toMatchObject({ available: 1, target: 1 });
    const second = await provider.getOrCreate();
    expect((await second.execute("echo warm")).output).toBe("warm\n");
    expect((await provider.poolStatus()).active).toBeGreaterThan(0);
    await Promise.all([first, second].map((sandbox) => provider.delete(sandbox.id)));
  }, 120_000);

  it("Error handling", async () => {
    const slow = new KubernetesProvider({ ...raw, image: "localhost/none:1", startupTimeoutMs: 3000 });
    const failure = await slow.getOrCreate().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(SandboxError);
    const none = new KubernetesProvider({ ...claims, templateName: "no-such-template", warmPoolName: undefined });
    await expect(none.getOrCreate()).rejects.toThrow(TemplateNotFoundError);
    expect(
      [MissingDependencyError, SandboxStartupTimeoutError].every((kind) => kind.prototype instanceof SandboxError),
    ).toBe(true);
  }, 60_000);

  it("says which router can't be reached", async () => {
    const nowhere = new KubernetesProvider({ ...routed, routerUrl: "http://127.0.0.1:9" });
    const made = await nowhere.getOrCreate().then(
      (sandbox) => sandbox.execute("true"),
      (error: unknown) => error,
    );
    expect(made).toSatisfy((failure) => failure instanceof SandboxRouterError && failure.url === "http://127.0.0.1:9");
  }, 120_000);

  it("SandboxRouterClient", async () => {
    const client = new SandboxRouterClient(routed.routerUrl ?? "", {
      namespace: raw.namespace,
      privateKeyFile: routed.privateKeyFile,
    });
    const { name, ready } = await client.createSandbox("podbay-routed");
    expect(ready).toBe(true);
    const run = await client.run(name, "echo out; echo err >&2; exit 3");
    expect(run).toEqual({ stdout: "out\n", stderr: "err\n", exitCode: 3 });
    expect((await client.run(name, "sleep 60", 500)).exitCode).toBe(124);
    await client.uploadFile(name, "/workspace/a b", Buffer.alloc(200_000, 7));
    expect(await client.downloadFile(name, "/workspace/a b")).toEqual(new Uint8Array(200_000).fill(7));
    await expect(client.downloadFile(name, "/none")).rejects.toThrow(SandboxRouterError);
    expect(await client.status(name)).toMatchObject({ name, ready: true });
    expect((await client.listSandboxes()).map((listed) => listed.name)).toContain(name);
    expect(await client.listSandboxes("team=nobody")).toEqual([]);
    expect(await client.listSandboxClaims()).toContainEqual(
      expect.objectContaining({ metadata: expect.objectContaining({ name }) }),
    );
    await client.deleteSandbox(name);
    await client.deleteSandbox(name);
    expect((await client.status(name)).ready).toBe(false);
    await expect(client.createSandbox("no-such-template")).rejects.toThrow(TemplateNotFoundError);
  }, 60_000);
});
