/** Where the suites run: on this machine, and in pods if there is a cluster. */

import type { SandboxOptions } from "podbay";

/** The image is one of the test cluster's. The pods are small enough that many fit on its only node. */
const pods: SandboxOptions = {
  mode: "raw",
  image: "localhost/debian:1",
  imagePullPolicy: "Never",
  memoryRequest: "16Mi",
  cpuRequest: "10m",
  ttl: "10m",
};

/** Claims on the pool of tests/pool.yaml. */
const claims: SandboxOptions = { mode: "agent-sandbox", templateName: "podbay-tests", ttl: "10m" };

/** Claims that are reached through agent-sandbox's router, at a port of this machine that is forwarded to it. */
const routed: SandboxOptions = {
  mode: "agent-sandbox",
  templateName: "podbay-routed",
  connection: "direct",
  routerUrl: process.env["TEST_ROUTER_URL"],
  privateKeyFile: process.env["TEST_ROUTER_KEY"],
  ttl: "10m",
};

const clusters: [string, SandboxOptions][] = [
  ["raw", pods],
  ["agent-sandbox", claims],
  ["agent-sandbox through the router", routed],
];

/** Each place, with the options of a sandbox there. `cargo xtask test node` says whether there is a cluster. */
export const places: [string, SandboxOptions][] = [
  ["local", {}],
  ...(process.env["TEST_ON_CLUSTER"] === undefined ? [] : clusters),
];
