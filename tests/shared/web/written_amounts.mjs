// Prints what the pages write for each amount of standard input, in each language: [[language, minor, currency], …].
// The formatter is built as the pages are, and runs in a browser's place.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import vm from "node:vm";

const web = path.resolve(process.argv[2]);
const esbuild = createRequire(`${web}/build.mjs`)("esbuild");
const { currencyDigits } = await import(`${web}/currency_digits.mjs`);

async function formatter(language) {
  const texts = JSON.parse(await readFile(path.join(web, "../shared/words", `${language}.json`), "utf8"));
  const define = Object.fromEntries(Object.entries(texts).map(([key, text]) => [`texts.${key}`, JSON.stringify(text)]));
  define.CURRENCY_DIGITS = JSON.stringify(await currencyDigits());
  const page = { entryPoints: ["fans/format.js"], format: "iife", globalName: "page", bundle: true, write: false };
  const built = await esbuild.build({ absWorkingDir: web, define, ...page });
  const browser = { navigator: { languages: [language] }, Intl };
  vm.runInNewContext(built.outputFiles[0].text, browser);
  return browser.page.money;
}

let input = "";
for await (const part of process.stdin) input += part;
const formatters = {};
const written = [];
for (const [language, minor, currency] of JSON.parse(input)) {
  formatters[language] ??= await formatter(language);
  written.push(formatters[language](minor, currency));
}
console.log(JSON.stringify(written));
