/** Operations on the contents of files: for each one its options, its result and its method. */

import type { NativeReadResult, NativeSandbox } from "./native-types.js";
import { type Abortable, bytes, call, text } from "./operation.js";

/** Options of `read`. */
export interface ReadOptions extends Abortable {
  /** How many lines to skip. Default: 0. */
  offset?: number | undefined;
  /** How many lines to return. Default: 2000. */
  limit?: number | undefined;
  /** The maximum size of a page in bytes. Default: 512,000. */
  maxBytes?: number | undefined;
  /** How many of these bytes the caller wants to append. Default: 0. */
  reserveBytes?: number | undefined;
  /** A larger binary file fails with the code `too_large`. Default: 512,000. */
  maxBinaryBytes?: number | undefined;
  /** Whether some extensions make a file binary whatever its contents. Default: true. */
  binaryByExtension?: boolean | undefined;
  /** Lines of a larger file aren't counted. Default: 64 MiB. */
  countLinesUpTo?: number | undefined;
}

/** A page of a file. */
export interface ReadResult {
  /** The file's absolute path. */
  readonly path: string;
  /** The page as bytes. */
  readonly content: Uint8Array;
  /** The page as text. Invalid UTF-8 is replaced. */
  readonly text: string;
  /** `utf-8`: lines joined by line feeds, without a trailing one. `binary`: the whole file. */
  readonly encoding: "utf-8" | "binary";
  /** Whether the file is empty. */
  readonly empty: boolean;
  /** Whether no lines were requested. */
  readonly noLinesRequested: boolean;
  /** Whether the file counts as binary because of its extension alone. */
  readonly binaryByExtension: boolean;
  /** The number of the page's first line; the file's first line is 1. */
  readonly startLine?: number;
  /** The number of the page's last complete line. */
  readonly endLine?: number;
  /** How many lines the file has, if they were counted. */
  readonly totalLines?: number;
  /** The offset of the next page; absent at the end of the file. */
  readonly nextOffset?: number;
  /** The offset of the first byte, if a byte range was requested. */
  readonly start?: number;
  /** Whether the page ended because it was full. */
  readonly truncated: boolean;
  /** How many bytes at the end belong to an incomplete line, including the line break before it. */
  readonly partialLineBytes: number;
  /** Whether even the first line is incomplete; only `readBytes` can read the rest of it. */
  readonly firstLineCut: boolean;
  /** The file's size in bytes. */
  readonly size: number;
  /** When the contents last changed. */
  readonly modified: number;
  /** Permission bits. */
  readonly mode: number;
}

/** Options of `readBytes`. */
export interface ReadBytesOptions extends Abortable {
  /** The offset of the first byte. Default: 0. */
  start?: number | undefined;
  /** How many bytes. Default: all. */
  length?: number | undefined;
}

/** Options of `write`. */
export interface WriteOptions extends Abortable {
  /** Fail with `AlreadyExists` if the path exists. */
  createOnly?: boolean | undefined;
  /** Create missing parent directories. Default: true. */
  parents?: boolean | undefined;
  /** Permission bits. */
  mode?: number | undefined;
}

/** The result of a write. */
export interface WriteResult {
  /** The file's path; for a relocated artefact path, the real one. */
  readonly path: string;
  /** How many bytes were written. */
  readonly size: number;
  /** Whether the file is new. */
  readonly created: boolean;
  /** Whether the file was overwritten in place instead of being replaced atomically. */
  readonly inPlace: boolean;
  /** Permission bits. */
  readonly mode: number;
  /** When it was written. */
  readonly modified: number;
}

/** Options of `edit`. */
export interface EditOptions extends Abortable {
  /** Replace every occurrence. */
  replaceAll?: boolean | undefined;
  /** Let an empty old text fill an empty file. */
  fillEmpty?: boolean | undefined;
}

/** The result of an edit. */
export interface EditResult {
  /** The file's path. */
  readonly path: string;
  /** How many occurrences were replaced. */
  readonly occurrences: number;
  /** With which line endings the old text was found. */
  readonly lineEndings: "as_sent" | "crlf" | "lf";
  /** The line of the first occurrence; the first line is 1. */
  readonly firstLine: number;
  /** The file's new size in bytes. */
  readonly size: number;
  /** Whether the file was overwritten in place instead of being replaced atomically. */
  readonly inPlace: boolean;
}

/** Adds the text to a page, decoded when it is first asked for. */
function page(read: NativeReadResult): ReadResult {
  let decoded: string | undefined;
  return Object.defineProperty(read as ReadResult, "text", {
    enumerable: true,
    get: () => {
      decoded ??= text(read.content);
      return decoded;
    },
  });
}

/** Reads and writes the files of a sandbox. */
export default abstract class FileContents {
  readonly #native: NativeSandbox;

  constructor(native: NativeSandbox) {
    this.#native = native;
  }

  /** Reads a page of a file: lines of text starting at an offset, or a whole binary file. */
  async read(path: string, { signal, ...options }: ReadOptions = {}): Promise<ReadResult> {
    return page(await call(signal, (cancel) => this.#native.read(path, options, cancel)));
  }

  /** Reads a file's bytes unchanged, all of them or a range. */
  readBytes(path: string, { signal, start = 0, length }: ReadBytesOptions = {}): Promise<Uint8Array> {
    return call(signal, (cancel) => this.#native.readBytes(path, start, length, cancel));
  }

  /** Creates or replaces a file atomically, and creates missing parent directories. */
  write(path: string, content: string | Uint8Array, options: WriteOptions = {}): Promise<WriteResult> {
    const { signal, ...rest } = options;
    return call(signal, (cancel) => this.#native.write(path, bytes(content), rest, cancel));
  }

  /**
   * Writes the output of a command that was run before to a file, without fetching it. If there are more than `limit` bytes (1 MiB),
   * the beginning and the end are written, and `gap` between them.
   */
  writeOutputOf(
    path: string,
    id: string,
    { signal, limit, gap = "" }: Abortable & { limit?: number; gap?: string | Uint8Array } = {},
  ): Promise<WriteResult> {
    return call(signal, (cancel) => this.#native.writeOutputOf(path, id, limit, bytes(gap), cancel));
  }

  /** Replaces a literal text in a file. The text must occur exactly once, unless `replaceAll` is set. */
  edit(
    path: string,
    old: string | Uint8Array,
    replacement: string | Uint8Array,
    options: EditOptions = {},
  ): Promise<EditResult> {
    const { signal, ...rest } = options;
    return call(signal, (cancel) => this.#native.edit(path, bytes(old), bytes(replacement), rest, cancel));
  }
}
