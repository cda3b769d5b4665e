// Prints the TypeScript API reference, generated from the types and comments of everything that the package exports.
//
// Run it by `cargo xtask reference node`, which writes docs/reference/typescript.md.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { SyntaxKind } from "typescript/unstable/ast";
import { API, SymbolFlags } from "typescript/unstable/sync";

const HEAD = `# TypeScript reference

Generated from the package's types and comments by \`cargo xtask reference node\`; \`cargo xtask test\` checks that it is up to
date. Start with the [guide](../typescript.md).
`;
const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const api = new API({ cwd: root });
const [project] = api.updateSnapshot({ openProjects: [join(root, "tsconfig.esm.json")] }).getProjects();
const { program, checker } = project;

/** What the symbol of an export, or of a member, stands for. */
const KINDS = new Map([
  [SyntaxKind.ClassDeclaration, { rank: 0, describe: described("class", "member") }],
  [SyntaxKind.FunctionDeclaration, { rank: 1, describe: describedFunction }],
  [SyntaxKind.VariableDeclaration, { rank: 2, describe: describedConstant }],
  [SyntaxKind.InterfaceDeclaration, { rank: 3, describe: described("interface", "field") }],
  [SyntaxKind.TypeAliasDeclaration, { rank: 4, describe: describedAlias }],
]);

/** Describes everything that an entry point of the package exports. */
function entryPoint([path, conditions]) {
  const source = conditions.import.types.replace("./esm/", "src/").replace(".d.ts", ".ts");
  const file = program.getSourceFile(join(root, source));
  const [, comment] = file.text.match(/^\/\*\*(.*?)\*\//s);
  const introduction = comment.replace(/^ ?\* ?/gm, "").trim();
  const found = checker.getExportsOfModule(checker.getSymbolAtLocation(file)).map(exported);
  found.sort((one, other) => one.rank - other.rank || (one.name < other.name ? -1 : 1));
  const parts = found.filter((entry) => !entry.isError).map((entry) => entry.describe(entry));
  const errors = found.filter((entry) => entry.isError);
  if (errors.length > 0) {
    const rows = errors.map(({ name, node, symbol }) => row(`\`${name}\``, `\`${base(node)}\``, text(symbol, name)));
    parts.push(["### Errors", "", "| class | extends | |", "|---|---|---|", ...rows, ""].join("\n"));
  }
  return [`## \`${join("podbay", path)}\``, "", introduction, "", ...parts].join("\n");
}

function exported(symbol) {
  const target = symbol.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const node = target.declarations[0].resolve();
  const kind = KINDS.get(node.kind);
  if (kind === undefined) {
    throw new Error(`${symbol.name}: no way to describe a ${SyntaxKind[node.kind]}`);
  }
  const renamed = target.name !== symbol.name;
  const isError = node.kind === SyntaxKind.ClassDeclaration && /Error$/.test(ancestors(node).at(-1) ?? "");
  return { ...kind, ...(renamed && { describe: describedName }), name: symbol.name, symbol: target, node, isError };
}

function describedName({ name, symbol }) {
  return `### \`${name}\`\n\nAnother name of \`${symbol.name}\`.\n`;
}

function described(kind, column) {
  return ({ name, symbol, node }) => {
    const parts = [node, ...continuations(node).toReversed()];
    const members = parts.flatMap((part) => part.members.filter((of) => part === node || !isConstructor(of)));
    const rows = members.filter(isPublic).filter(isShown).map(member);
    const table = rows.length > 0 ? [`| ${column} | |`, "|---|---|", ...rows, ""] : [];
    const clauses = (node.heritageClauses ?? []).slice(parts.length > 1 ? 1 : 0);
    const heritage = clauses.map((clause) => ` ${oneLine(clause.getText())}`).join("");
    return [`### ${kind} \`${name}${heritage}\``, "", text(symbol, name), "", ...table].join("\n");
  };
}

function describedFunction({ name, symbol, node }) {
  return `### \`${name}${signature(node)}\`\n\n${text(symbol, name)}\n`;
}

function describedConstant({ name, symbol }) {
  const type = checker.typeToString(checker.getTypeOfSymbol(symbol));
  // The type of a constant with many fields is long, and the same as its documented value.
  const shown = type.startsWith("{") ? "" : `: ${type}`;
  return `### \`${name}${shown}\`\n\n${text(symbol, name)}\n`;
}

function describedAlias({ name, symbol, node }) {
  return `### type \`${name} = ${oneLine(node.type.getText())}\`\n\n${text(symbol, name)}\n`;
}

function isConstructor(node) {
  return node.kind === SyntaxKind.Constructor;
}

function isPublic(node) {
  const named = isConstructor(node) || node.name?.kind === SyntaxKind.Identifier;
  const quoted = node.name?.kind === SyntaxKind.StringLiteral;
  // Symbol.asyncDispose is in the heritage, and keys of settings in quotes are other names of the same settings.
  return named && !quoted && !(node.jsDoc ?? []).some((comment) => comment.getText().includes("@internal"));
}

/** Whether callers see a declaration: they don't see what implements overloads. */
function isShown(node, _, all) {
  const isOverload = (other) => other.kind === node.kind && other.name?.text === node.name?.text && !other.body;
  return node.body === undefined || !all.some(isOverload);
}

/** A row for a member of a class or a field of an interface. */
function member(node) {
  if (isConstructor(node)) {
    return row(`\`new ${node.parent.name.text}${signature(node)}\``, "");
  }
  const name = node.name.text;
  const fixed = node.modifiers?.some((modifier) => modifier.kind === SyntaxKind.StaticKeyword) ? "static " : "";
  const isCall = node.kind === SyntaxKind.MethodDeclaration || node.kind === SyntaxKind.MethodSignature;
  const optional = node.questionToken === undefined && node.postfixToken === undefined ? "" : "?";
  const type = isCall ? signature(node) : `${optional}: ${fieldType(node, optional !== "")}`;
  const symbol = checker.getSymbolAtLocation(node.name);
  return row(`\`${fixed}${name}${type}\``, text(symbol, `${node.parent.name.text}.${name}`));
}

function fieldType(node, optional) {
  const type = oneLine(node.type.getText());
  return optional ? type.replace(/ \| undefined$/, "") : type;
}

/** Parameters and result, as they are written. */
function signature(node) {
  const whole = node.getSourceFile().text;
  const open = whole.lastIndexOf("(", (node.parameters[0] ?? node.type ?? node.body).getStart());
  const end = node.body?.getStart() ?? node.end;
  return oneLine(whole.slice(open, end).replace(/;$/, ""));
}

/** The documentation of a symbol, which is required. */
function text(symbol, name) {
  const tags = checker.getJsDocTagsOfSymbol(symbol).filter((tag) => tag.name === "deprecated");
  const notes = tags.map((tag) => `Deprecated: ${tag.text}`);
  const all = [checker.getDocumentationCommentOfSymbol(symbol), ...notes].filter((part) => part !== "");
  if (all.length === 0) {
    throw new Error(`${name} has no comment: write one`);
  }
  return all.join("\n\n");
}

function base(node) {
  return node.heritageClauses?.[0]?.types[0]?.expression.getText();
}

/** The declaration of the class that a class extends. */
function parent(node) {
  if (node.kind !== SyntaxKind.ClassDeclaration || base(node) === undefined) {
    return undefined;
  }
  const found = checker.getSymbolAtLocation(node.heritageClauses[0].types[0].expression);
  const target = found.flags & SymbolFlags.Alias ? checker.getAliasedSymbol(found) : found;
  const above = target.declarations[0]?.resolve();
  return above?.kind === SyntaxKind.ClassDeclaration ? above : undefined;
}

/** The classes that a class extends, the nearest first. */
function ancestors(node) {
  const above = parent(node);
  return [base(node), ...(above ? ancestors(above) : [])].filter((name) => name !== undefined);
}

/** The parts of a class in other files: they are default exports, which the package doesn't pass on. */
function continuations(node) {
  const above = parent(node);
  const isPart = above?.modifiers?.some((modifier) => modifier.kind === SyntaxKind.DefaultKeyword);
  return isPart ? [above, ...continuations(above)] : [];
}

function oneLine(code) {
  const joined = code.replace(/\s+/g, " ").trim();
  // As the formatter would write it if lines had no end.
  return joined.replace(/([([]) /g, "$1").replace(/,? ([)\]])/g, "$1");
}

function row(...cells) {
  return `| ${cells.map((cell) => cell.split("\n\n")[0].replace(/\n/g, " ").replace(/\|/g, "\\|")).join(" | ")} |`;
}

const entryPoints = Object.entries(exports).filter(([, conditions]) => typeof conditions === "object");
process.stdout.write(`${[HEAD, ...entryPoints.map(entryPoint)].join("\n").trimEnd()}\n`);
api.close();
