import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../..", import.meta.url));

// Whoever hovers over a name finds what it means.
test("every exported name is described, with its members", () => {
  const { exports } = JSON.parse(ts.sys.readFile(join(root, "package.json")) ?? "") as { exports: Record<string, { types: string }> };
  const entries = Object.values(exports).map(({ types }) => join(root, types));
  assert.ok(entries.length >= 4 && readdirSync(join(root, "dist")).length > 0);
  const program = ts.createProgram(entries, {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    types: ["node"],
    strict: true,
    skipLibCheck: true,
  });
  const checker = program.getTypeChecker();
  const missing: string[] = [];

  function judge(name: string, symbol: ts.Symbol): void {
    const declaration = symbol.declarations?.find((each) => each.getSourceFile().fileName.startsWith(join(root, "dist")));
    const described = symbol.getDocumentationComment(checker).length > 0;
    if (declaration !== undefined && !described) {
      missing.push(name);
    }
  }

  for (const entry of entries) {
    const source = program.getSourceFile(entry);
    assert.ok(source !== undefined, entry);
    const module = checker.getSymbolAtLocation(source);
    assert.ok(module !== undefined, entry);
    for (const exported of checker.getExportsOfModule(module)) {
      const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
      judge(symbol.name, symbol);
      for (const member of symbol.members?.values() ?? []) {
        const [declaration] = member.declarations ?? [];
        const hidden =
          declaration === undefined ||
          ts.isPrivateIdentifier(ts.getNameOfDeclaration(declaration) ?? declaration) ||
          (ts.getCombinedModifierFlags(declaration) & ts.ModifierFlags.Private) !== 0 ||
          (member.flags & ts.SymbolFlags.TypeParameter) !== 0 ||
          ["name", "cause"].includes(member.name) ||
          member.name.startsWith("__");
        if (!hidden) {
          judge(`${symbol.name}.${member.name}`, member);
        }
      }
    }
  }
  assert.deepEqual(missing, []);
});
