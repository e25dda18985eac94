// Strict and typed. What a rule forbids is switched off only here, with its reason.
import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig([
  globalIgnores(["**/node_modules/", "**/gen/src/", "**/dist/", "**/build/", "**/packed/"]),
  js.configs.recommended,
  {
    files: ["**/*.ts", "**/*.mts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // A name that begins with `_` is there to be left out.
      "@typescript-eslint/no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      // `() => {}` is how one says that nothing is done, and `() => f()` that whatever f gives is given on, nothing included.
      "@typescript-eslint/no-empty-function": ["error", { allow: ["arrowFunctions"] }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      // Type parameters that only carry a type to the caller are what `workflow<In, Out>(…)` is made of.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
    },
  },
  {
    files: ["**/test/**/*.ts"],
    rules: {
      // `test(…)` returns a promise that its runner waits for.
      "@typescript-eslint/no-floating-promises": "off",
    },
  },
]);
