// Runs the tests of the fans' scripts, without a browser: `node test.mjs`. They are built as the pages are, in English.
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";
import { currencyDigits } from "./currency_digits.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const words = JSON.parse(await readFile(path.join(HERE, "../shared/words/en.json"), "utf8"));
const tests = (await readdir(path.join(HERE, "tests"))).filter((file) => file.endsWith(".test.js"));
const outdir = await mkdtemp(path.join(tmpdir(), "onsale-tests-"));
await esbuild.build({
  absWorkingDir: HERE,
  entryPoints: tests.map((file) => `tests/${file}`),
  outdir,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  target: ["node20"],
  define: {
    ...Object.fromEntries(Object.entries(words).map(([key, text]) => [`texts.${key}`, JSON.stringify(text)])),
    CURRENCY_DIGITS: JSON.stringify(await currencyDigits()),
    PROBLEM_TEXTS: "null",
  },
});
const built = tests.map((file) => path.join(outdir, file.replace(/\.js$/, ".mjs")));
const { status } = spawnSync(process.execPath, ["--test", ...built], { stdio: "inherit" });
await rm(outdir, { recursive: true });
process.exit(status ?? 1);
