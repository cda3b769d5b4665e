/**
 * Operations on files without content: for each one its options, its result and its method, which sends the protocol's request
 * and converts the answer. Points in time are milliseconds since 1970, as in `Date`; durations are seconds.
 */

import FileContents from "./file-contents.js";
import type { NativeSandbox } from "./native-types.js";
import { type Abortable, call } from "./operation.js";
import type * as protocol from "./protocol.js";
import { fromPath, join, milliseconds, moment, name, present, toPath, toText, whole } from "./values.js";

/** What is at a path. */
export type FileKind = "file" | "dir" | "link" | "fifo" | "socket" | "char_device" | "block_device" | "other";

/** Why a result is incomplete. */
export interface Partial {
  /** What stopped it. */
  readonly reason: "budget" | "unreadable" | "other";
  /** One sentence for people. */
  readonly detail: string;
  /** How many files and directories couldn't be read. */
  readonly unreadable: number;
  /** Whether a limit was reached as well. */
  readonly limitReached: boolean;
}

/** Options of `ls`. */
export interface LsOptions extends Abortable {
  /** How many entries to return. Default: 100,000. */
  limit?: number | undefined;
}

/** An entry of a directory. */
export interface Entry {
  /** Its path. */
  readonly path: string;
  /** The last component of its path. */
  readonly name: string;
  /** What it is. */
  readonly kind: FileKind;
  /** Whether it is a directory. A link to a directory isn't. */
  readonly isDir: boolean;
  /** Size in bytes. */
  readonly size: number;
  /** When the contents last changed. */
  readonly modified: number;
  /** Permission bits. */
  readonly mode: number;
  /** Where a symbolic link points. */
  readonly target?: string;
  /** What a symbolic link points to; absent if nothing is there. */
  readonly targetKind?: FileKind;
}

/** The contents of a directory. */
export interface LsResult {
  /** The directory's path. */
  readonly path: string;
  /** Its entries, sorted by name. */
  readonly entries: Entry[];
  /** Set if there are more entries. */
  readonly partial?: Partial;
}

/** Options of `stat`. */
export interface StatOptions extends Abortable {
  /** Follow symbolic links. Default: true. */
  follow?: boolean | undefined;
}

/** What is at a path. */
export interface StatResult extends Entry {
  /** The owner's user id. */
  readonly uid: number;
  /** The owner's group id. */
  readonly gid: number;
  /** How many hard links it has. */
  readonly links: number;
  /** Its inode number. */
  readonly inode: number;
}

/** Options of `glob`. */
export interface GlobOptions extends Abortable {
  /** Find directories, too. */
  directories?: boolean | undefined;
  /** Let wildcards match names that begin with a dot. */
  dots?: boolean | undefined;
  /** Match a pattern without '/' against the whole relative path, not against names at any depth. */
  wholePath?: boolean | undefined;
  /** How many matches to return. Default: 10,000. */
  limit?: number | undefined;
  /** How many seconds the search may take. Default: 5. After that, `partial` is set. */
  budget?: number | undefined;
}

/** A file that matches a pattern. */
export interface GlobMatch {
  /** Its absolute path. */
  readonly path: string;
  /** Its path relative to the directory that was searched. */
  readonly relative: string;
  /** What it is; for a link, what the link points to. */
  readonly kind: FileKind;
  /** Whether it is a symbolic link. */
  readonly isLink: boolean;
  /** Size in bytes. */
  readonly size: number;
  /** When the contents last changed. */
  readonly modified: number;
}

/** The files that match a pattern. */
export interface GlobResult {
  /** The directory that was searched. */
  readonly path: string;
  /** The matches, sorted by path. */
  readonly matches: GlobMatch[];
  /** Set if matches may be missing. */
  readonly partial?: Partial;
}

/** Options of `grep`. */
export interface GrepOptions extends Abortable {
  /** Search only files whose name matches. */
  glob?: string | undefined;
  /** How many lines to return, over all files. */
  maxCount?: number | undefined;
  /** Names of directories to skip. Default: `[".git"]`. */
  excludeDirs?: string[] | undefined;
  /** How many seconds the search may take. Default: 15. */
  budget?: number | undefined;
  /** Longer lines are cut. Default: 100,000. */
  maxLineBytes?: number | undefined;
}

/** A line that contains the text. */
export interface GrepMatch {
  /** The file. */
  readonly path: string;
  /** The line's number; the first is 1. */
  readonly line: number;
  /** The line, without its line break. */
  readonly text: string;
  /** Whether the line is longer than `text`. */
  readonly cut: boolean;
}

/** The lines that contain the text. */
export interface GrepResult {
  /** The directory or file that was searched. */
  readonly path: string;
  /** The lines, sorted by file and number. */
  readonly matches: GrepMatch[];
  /** How many lines were found. */
  readonly count: number;
  /** How many files were searched. */
  readonly searched: number;
  /** Set if matches may be missing. */
  readonly partial?: Partial;
}

/** Options of `tree`. */
export interface TreeOptions extends Abortable {
  /** How many levels to descend. */
  maxDepth?: number | undefined;
  /** How many entries to return. Default: 100,000. */
  limit?: number | undefined;
  /** List only what sorts after this relative path, to continue a list whose `partial` is set. */
  after?: string | undefined;
  /** How many seconds the walk may take. Default: 30. */
  budget?: number | undefined;
}

/** An entry of a tree. */
export interface TreeEntry {
  /** Its absolute path. */
  readonly path: string;
  /** Its path relative to the tree's directory. */
  readonly relative: string;
  /** What it is. */
  readonly kind: FileKind;
  /** Size in bytes. */
  readonly size: number;
  /** When the contents last changed. */
  readonly modified: number;
  /** Permission bits. */
  readonly mode: number;
  /** Where a symbolic link points. */
  readonly target?: string;
}

/** Everything below a directory. */
export interface TreeResult {
  /** The directory's path. */
  readonly path: string;
  /** The entries, sorted by path, a directory before its contents. */
  readonly entries: TreeEntry[];
  /** Set if there are more entries. */
  readonly partial?: Partial;
}

/** Options of `delete`. */
export interface DeleteOptions extends Abortable {
  /** Delete a directory with its contents. Default: true. */
  recursive?: boolean | undefined;
  /** Don't fail if nothing is there. */
  missingOk?: boolean | undefined;
}

/** The result of a deletion. */
export interface DeleteResult {
  /** The path. */
  readonly path: string;
  /** What was deleted; absent if nothing was there. */
  readonly kind?: FileKind;
  /** How many files and directories were removed, at all levels. */
  readonly removed: number;
}

/** Options of `mkdir`. */
export interface MkdirOptions extends Abortable {
  /** Create missing parents. Default: true. */
  parents?: boolean | undefined;
  /** Don't fail if the directory exists. Default: true. */
  existOk?: boolean | undefined;
  /** Permission bits. */
  mode?: number | undefined;
}

/** The result of creating a directory. */
export interface MkdirResult {
  /** The directory's path. */
  readonly path: string;
  /** Whether the directory is new. */
  readonly created: boolean;
}

/** Options of `move`. */
export interface MoveOptions extends Abortable {
  /** Replace what is at the target. */
  overwrite?: boolean | undefined;
  /** Create missing parents of the target. Default: true. */
  parents?: boolean | undefined;
}

/** The result of a move. */
export interface MoveResult {
  /** The old path. */
  readonly source: string;
  /** The new path. */
  readonly target: string;
  /** What was moved. */
  readonly kind: FileKind;
  /** Whether it was copied, because the target is on another file system. */
  readonly copied: boolean;
}

function partial(incomplete: protocol.Partial | null | undefined): { partial?: Partial } {
  if (incomplete == null) {
    return {};
  }
  const { reason, detail, unreadable = 0, limit_reached: limitReached = false } = incomplete;
  return { partial: { reason, detail, unreadable, limitReached } };
}

function entry({ path, kind, size, modified, mode, link }: protocol.Entry): Entry {
  return {
    path: fromPath(path),
    name: name(fromPath(path)),
    kind,
    isDir: kind === "dir",
    size,
    modified: moment(modified),
    mode,
    ...present({ target: link && fromPath(link.target), targetKind: link?.target_kind }),
  };
}

/** The file operations of a sandbox. */
export default abstract class FileOperations extends FileContents {
  readonly #native: NativeSandbox;

  constructor(native: NativeSandbox) {
    super(native);
    this.#native = native;
  }

  /** Performs an operation without content. */
  async #perform<Name extends keyof protocol.Operations>(
    operation: Name,
    signal: AbortSignal | undefined,
    request: protocol.Operations[Name]["request"],
  ): Promise<protocol.Operations[Name]["answer"]> {
    const sent = JSON.stringify(request);
    return JSON.parse(await call(signal, (cancel) => this.#native.perform(operation, sent, cancel)));
  }

  /** Lists a directory (by default the working directory): its direct children, including hidden ones. */
  async ls(path?: string, { signal, limit }: LsOptions = {}): Promise<LsResult> {
    const found = await this.#perform("ls", signal, { path: toPath(path), limit: whole(limit) });
    return { path: fromPath(found.path), entries: found.entries.map(entry), ...partial(found.partial) };
  }

  /** Returns what is at a path. */
  async stat(path: string, { signal, follow = true }: StatOptions = {}): Promise<StatResult> {
    const found = await this.#perform("stat", signal, { path: toPath(path), follow });
    const { uid, gid, links, inode } = found;
    return { ...entry(found), uid, gid, links, inode };
  }

  /** Finds files by name. A pattern without '/' matches names at any depth; '**' matches any number of directories. */
  async glob(pattern: string, path?: string, options: GlobOptions = {}): Promise<GlobResult> {
    const { signal, directories, dots, wholePath, limit, budget } = options;
    const found = await this.#perform("glob", signal, {
      pattern: toPath(pattern),
      path: toPath(path),
      directories,
      dots,
      whole_path: wholePath,
      limit: whole(limit),
      budget_ms: milliseconds(budget),
    });
    const start = fromPath(found.path);
    const matches = found.matches.map(({ path: below, kind, is_link: isLink = false, size, modified }): GlobMatch => {
      const relative = fromPath(below);
      return { path: join(start, relative), relative, kind, isLink, size, modified: moment(modified) };
    });
    return { path: start, matches, ...partial(found.partial) };
  }

  /** Finds lines that contain a literal text. */
  async grep(pattern: string, path?: string, options: GrepOptions = {}): Promise<GrepResult> {
    const { signal, glob, maxCount, excludeDirs, budget, maxLineBytes } = options;
    const found = await this.#perform("grep", signal, {
      pattern: toText(pattern),
      path: toPath(path),
      glob: toPath(glob),
      max_count: whole(maxCount),
      exclude_dirs: excludeDirs?.map((dir) => toPath(dir)),
      budget_ms: milliseconds(budget),
      max_line_bytes: whole(maxLineBytes),
    });
    const matches = found.files.flatMap(({ path: file, lines }) => {
      const where = fromPath(file);
      return lines.map(({ line, text, cut = false }): GrepMatch => ({ path: where, line, text, cut }));
    });
    const { count, searched } = found;
    return { path: fromPath(found.path), matches, count, searched, ...partial(found.partial) };
  }

  /** Lists everything below a directory (by default the working directory). Symbolic links aren't followed. */
  async tree(path?: string, options: TreeOptions = {}): Promise<TreeResult> {
    const { signal, maxDepth, limit, after, budget } = options;
    const found = await this.#perform("tree", signal, {
      path: toPath(path),
      max_depth: whole(maxDepth),
      limit: whole(limit),
      after: toPath(after),
      budget_ms: milliseconds(budget),
    });
    const start = fromPath(found.path);
    const entries = found.entries.map(({ path: below, kind, size, modified, mode, target }): TreeEntry => {
      const relative = fromPath(below);
      const link = present({ target: target && fromPath(target) });
      return { path: join(start, relative), relative, kind, size, modified: moment(modified), mode, ...link };
    });
    return { path: start, entries, ...partial(found.partial) };
  }

  /** Deletes a file, a symbolic link, or a directory with its contents. */
  async delete(path: string, options: DeleteOptions = {}): Promise<DeleteResult> {
    const { signal, recursive = true, missingOk = false } = options;
    const request = { path: toPath(path), recursive, missing_ok: missingOk };
    const { path: deleted, kind, removed } = await this.#perform("delete", signal, request);
    return { path: fromPath(deleted), ...present({ kind }), removed };
  }

  /** Creates a directory and its missing parents. */
  async mkdir(path: string, options: MkdirOptions = {}): Promise<MkdirResult> {
    const { signal, parents = true, existOk = true, mode } = options;
    const request = { path: toPath(path), parents, exist_ok: existOk, mode: whole(mode) };
    const made = await this.#perform("mkdir", signal, request);
    return { path: fromPath(made.path), created: made.created };
  }

  /** Moves or renames a file or directory. The target is the new path, even if it names an existing directory. */
  async move(source: string, target: string, options: MoveOptions = {}): Promise<MoveResult> {
    const { signal, overwrite = false, parents = true } = options;
    const request = { from: toPath(source), to: toPath(target), overwrite, parents };
    const { from, to, kind, copied = false } = await this.#perform("move", signal, request);
    return { source: fromPath(from), target: fromPath(to), kind, copied };
  }
}
