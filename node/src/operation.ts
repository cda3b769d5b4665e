/** Runs native operations: converts their failures, and ends their work when a signal is aborted. */

import { converted, isCancelled } from "./failure.js";
import { type NativeCancellation, native } from "./native.js";

/** An option of every operation. */
export interface Abortable {
  /** Ends the operation, also in the sandbox: a command is killed, a transfer stopped. */
  signal?: AbortSignal | undefined;
}

/** Starts an operation and waits for it. */
export async function call<T>(
  signal: AbortSignal | undefined,
  start: (cancellation?: NativeCancellation) => Promise<T>,
): Promise<T> {
  if (signal === undefined) {
    try {
      return await start();
    } catch (failure) {
      throw converted(failure);
    }
  }
  signal.throwIfAborted();
  const cancellation = new native.Cancellation();
  const stop = () => cancellation.cancel();
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await start(cancellation);
  } catch (failure) {
    throw isCancelled(failure) ? signal.reason : converted(failure);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** Runs native code that returns at once. */
export function now<T>(work: () => T): T {
  try {
    return work();
  } catch (failure) {
    throw converted(failure);
  }
}

const encoder = new TextEncoder();
// A byte order mark is part of a file's contents.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** The bytes of a text, or bytes as they are. */
export function bytes(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? encoder.encode(content) : content;
}

/** The text of bytes. Invalid UTF-8 is replaced. */
export function text(content: Uint8Array): string {
  return decoder.decode(content);
}
