/** Running commands. */

import type { NativeExec } from "./native-types.js";
import { type Abortable, bytes, call, text } from "./operation.js";
import { type CommandInfo, commandInfo } from "./results.js";

/** A running command printed something. */
export interface OutputEvent {
  /** Distinguishes the kinds of events. */
  readonly kind: "output";
  /** Which stream it was printed to. */
  readonly stream: "stdout" | "stderr";
  /** What it printed. */
  readonly data: Uint8Array;
  /** The same as text. A character that is split between two events is replaced; join `data` where that matters. */
  readonly text: string;
}

/** A running command printed something here that its log no longer has. */
export interface LostEvent {
  /** Distinguishes the kinds of events. */
  readonly kind: "lost";
  /** How many bytes are missing. */
  readonly bytes: number;
}

/** A command has ended. This is its last event. */
export interface EndEvent {
  /** Distinguishes the kinds of events. */
  readonly kind: "end";
  /** How it ended. */
  readonly info: CommandInfo;
}

/** What a running command did. */
export type ExecEvent = OutputEvent | LostEvent | EndEvent;

/**
 * A running command: an asynchronous iterator over its events, the last of which is an `EndEvent`.
 *
 * `await using`, and a `for await` loop that is left early, kill the command. Otherwise a command that nobody follows keeps
 * running; `Sandbox.attach` follows it again.
 */
export class Exec implements AsyncIterableIterator<ExecEvent>, AsyncDisposable {
  readonly #native: NativeExec;
  readonly #signal: AbortSignal | undefined;

  /** @internal */
  constructor(native: NativeExec, signal?: AbortSignal) {
    this.#native = native;
    this.#signal = signal;
    if (signal !== undefined) {
      this.#killOn(signal);
    }
  }

  /** The command's id. */
  get id(): string {
    return this.#native.id;
  }

  /** How many bytes of its output have been read. */
  get offset(): number {
    return this.#native.offset;
  }

  /** Waits for the next event. */
  async next(): Promise<IteratorResult<ExecEvent, undefined>> {
    const event = await call(this.#signal, (cancel) => this.#native.next(cancel));
    if (event === null) {
      return { done: true, value: undefined };
    }
    if (event.kind === "output" && event.data !== undefined && event.stream !== undefined) {
      const { data, stream } = event;
      return { done: false, value: { kind: "output", stream, data, text: text(data) } };
    }
    if (event.info !== undefined) {
      return { done: false, value: { kind: "end", info: commandInfo(event.info) } };
    }
    return { done: false, value: { kind: "lost", bytes: event.bytes ?? 0 } };
  }

  /** Kills the command if it is still running: a `for await` loop that is left early calls this. */
  async return(): Promise<IteratorResult<ExecEvent, undefined>> {
    await this[Symbol.asyncDispose]();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Writes to the command's standard input, which must have been kept open. Returns false if the command closed it. */
  write(data: string | Uint8Array): Promise<boolean> {
    return call(undefined, () => this.#native.write(bytes(data)));
  }

  /** Closes the command's standard input. */
  closeInput(): Promise<void> {
    return call(undefined, () => this.#native.closeInput());
  }

  /** Sends a signal to all processes of the command. Returns how many got it. */
  signal(signal: number): Promise<number> {
    return call(undefined, () => this.#native.signal(signal));
  }

  /** Kills all processes of the command. Returns how many there were. */
  kill(): Promise<number> {
    return call(undefined, () => this.#native.kill());
  }

  /** Waits for the command to end, and discards its output. */
  async wait(options: Abortable = {}): Promise<CommandInfo> {
    return commandInfo(await call(options.signal ?? this.#signal, (cancel) => this.#native.wait(cancel)));
  }

  /** Kills the command if it is still running. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#native.ended) {
      await this.kill();
      // Wait, so that the command's end is in the audit log when the block ends.
      await call(undefined, () => this.#native.wait());
    }
  }

  #killOn(signal: AbortSignal): void {
    // A weak reference: a signal that lives as long as the program mustn't keep every command's object.
    const native = new WeakRef(this.#native);
    const kill = () => {
      const running = native.deref();
      if (running !== undefined && !running.ended) {
        // Whoever follows the command is told; here nobody could handle a failure.
        running.kill().catch(() => {});
      }
    };
    if (signal.aborted) {
      kill();
    } else {
      signal.addEventListener("abort", kill, { once: true });
    }
  }
}
