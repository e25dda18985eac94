// Strict and typed. What a rule forbids is switched off only here, with its reason.
import js from "@eslint/js";
import { defineConfig, globalIgnores } from "eslint/config";
import tseslint from "typescript-eslint";

export default defineConfig([
  globalIgnores(["**/node_modules/", "gen/", "sdk/dist/", "sdk/build/", "packed/"]),
  js.configs.recommended,
  {
    files: ["**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname },
    },
    rules: {
      // A name that begins with `_` is there to be left out.
      "@typescript-eslint/no-unused-vars": ["error", { varsIgnorePattern: "^_", argsIgnorePattern: "^_" }],
      // Type parameters that only carry a type to the caller are what `workflow<In, Out>(…)` is made of.
      "@typescript-eslint/no-unnecessary-type-parameters": "off",
      "@typescript-eslint/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
    },
  },
  {
    files: ["sdk/test/**/*.ts"],
    rules: {
      // `test(…)` returns a promise that its runner waits for.
      "@typescript-eslint/no-floating-promises": "off",
    },
  },
]);
