/** Conversions between JavaScript's values and those of the protocol: paths, numbers, times. */

import type { Path, Time } from "./protocol.js";

/** Strings have no place for bytes that aren't UTF-8: each becomes a lone surrogate, as in Python's file names. */
const ESCAPE = 0xdc00;
/** A surrogate that isn't half of a pair. */
const LONE = /\p{Surrogate}/u;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function string(value: unknown): string {
  if (typeof value !== "string") {
    throw new TypeError(`expected a string, got ${value === null ? "null" : typeof value}`);
  }
  return value;
}

/** A path for the protocol. */
export function toPath(text: string): Path;
export function toPath(text: string | undefined): Path | undefined;
export function toPath(text: string | undefined): Path | undefined {
  if (text === undefined || !LONE.test(string(text))) {
    return text;
  }
  const bytes = Array.from(text).flatMap((character) => {
    const byte = (character.codePointAt(0) ?? 0) - ESCAPE;
    return byte >= 0x80 && byte <= 0xff ? [byte] : [...encoder.encode(character)];
  });
  return { hex: bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("") };
}

/** A path for JavaScript. */
export function fromPath(path: Path): string {
  if (typeof path === "string") {
    return path;
  }
  const bytes = Uint8Array.from(path.hex.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16));
  let found = "";
  for (let at = 0; at < bytes.length; ) {
    const character = characterAt(bytes, at);
    found += character ?? String.fromCharCode(ESCAPE + (bytes[at] ?? 0));
    at += character === undefined ? 1 : encoder.encode(character).length;
  }
  return found;
}

/** The character that begins at an index; undefined where that isn't UTF-8. */
function characterAt(bytes: Uint8Array, at: number): string | undefined {
  const lead = bytes[at] ?? 0;
  const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  try {
    return decoder.decode(bytes.subarray(at, at + length));
  } catch {
    return undefined;
  }
}

/** A text for the protocol, which has only valid ones. */
export function toText(value: string): string {
  return string(value).replace(new RegExp(LONE, "gu"), "\ufffd");
}

/** The last component of a path. */
export function name(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Joins a directory and a path relative to it. */
export function join(directory: string, relative: string): string {
  return directory.endsWith("/") ? directory + relative : `${directory}/${relative}`;
}

/** A whole number for the protocol; a negative one counts as 0. */
export function whole(value: number | undefined): number | undefined {
  if (value === undefined) {
    return undefined;
  }
  if (typeof value !== "number") {
    throw new TypeError(`expected a number, got ${typeof value}`);
  }
  return Number.isFinite(value) ? Math.min(Math.max(Math.trunc(value), 0), Number.MAX_SAFE_INTEGER) : 0;
}

/** Seconds as milliseconds; a duration above zero gives at least 1. */
export function milliseconds(seconds: number | undefined): number | undefined {
  if (seconds === undefined) {
    return undefined;
  }
  if (typeof seconds !== "number" || !(seconds >= 0 && seconds < 2 ** 64)) {
    throw new TypeError(`${seconds} isn't a duration: pass 0 or more seconds`);
  }
  const passed = Math.trunc(Math.round(seconds * 1e9) / 1e6);
  return seconds === 0 ? 0 : Math.min(Math.max(passed, 1), Number.MAX_SAFE_INTEGER);
}

/** Milliseconds since 1970, as in `Date`. */
export function moment({ secs, nanos }: Time): number {
  return secs * 1e3 + nanos / 1e6;
}

type Present<T> = { [Key in keyof T]?: NonNullable<T[Key]> };

/** What is there of optional fields. */
export function present<T extends object>(fields: T): Present<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null)) as Present<T>;
}
