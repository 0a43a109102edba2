// Builds the pages: the fans' into features/pages/dist, the operators' into features/console/pages/dist, or
// both below the folder given as the first argument. Names carry a hash of the content, and a manifest has the digests
// that documents name. The same sources make the same bytes.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import * as esbuild from "esbuild";
import { currencyDigits } from "./currency_digits.mjs";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const WORDS = "../shared/words";
/** The language of the texts that the server writes, and of the console. */
const SERVER_LANGUAGE = "en";
/** What few need, in the order in which one names the next; the texts of problems for pages in other languages. */
const NAMED_AS = {
  problems: "PROBLEM_TEXTS", lottery_check: "LOTTERY_CHECK", lottery: "LOTTERY", inside: "INSIDE_SCRIPT", "hall/hall": "HALL_SCRIPT",
  "types/types": "TYPES_SCRIPT",
};
const PARTS = Object.keys(NAMED_AS);
/** A part takes these modules from the page that loads it (`fans/shared.js`). */
const SHARED = /^\.{1,2}\/(api|clock|dom|format|limits|memory|price|words)\.js$/;
const STYLES = ["fans/styles.css", "fans/branded.css", "fans/plain.css", "fans/catalogue.css", "fans/order.css", "fans/seats.css", "fans/hall/hall.css", "fans/types/types.css"];
const ICONS = ["fans/icon.svg", "fans/icon-192.png", "fans/icon-512.png"];
const PAGES = ["event", "catalogue", "order", "orders"];
const BELOW = process.argv[2] && path.resolve(process.argv[2]);
const outOf = (part, folder) => (BELOW ? path.join(BELOW, part) : path.join(HERE, `../${folder}/dist`));
const sha384 = (bytes) => `sha384-${createHash("sha384").update(bytes).digest("base64")}`;

const fromThePage = {
  name: "from the page",
  setup(build) {
    build.onResolve({ filter: SHARED }, ({ path: name }) => ({ path: name.match(SHARED)[1], namespace: "page" }));
    build.onLoad({ filter: /./, namespace: "page" }, ({ path: name }) => ({ contents: `module.exports = onsale.${name};` }));
  },
};

await fans(outOf("fans", "features/pages"));
await operators(outOf("console", "features/console/pages"));

// Each page is one script a language, so that it takes one request; what few need is loaded when they need it.
async function fans(out) {
  const alone = await bundle(out, { entryPoints: ["fans/proof_worker.js", ...ICONS, ...STYLES], loader: { ".svg": "copy", ".png": "copy" } });
  alone.push(...(await bundle(out, { entryPoints: ["fans/embed.js"], format: "iife" }))); // for other sites, in any script element
  alone.push(...(await bundle(out, { entryPoints: ["fans/onsale.ts"] })), await types()); // the client, for other programs
  const addressOf = (start, end) => `"/static/${alone.find(({ name }) => name.startsWith(start) && name.endsWith(end)).name}"`;
  const pages = [];
  for (const language of await languages()) {
    const define = {
      PROOF_WORKER: addressOf("proof_worker-", ".js"), HALL_STYLE: addressOf("hall-", ".css"), BRANDED: addressOf("branded-", ".css"),
      SEATS_STYLE: addressOf("seats-", ".css"), TYPES_STYLE: addressOf("types-", ".css"),
      PROBLEM_TEXTS: "null",
    };
    for (const part of language === SERVER_LANGUAGE ? PARTS.slice(1) : PARTS) {
      const [built] = await bundle(out, { entryPoints: [`fans/${part}.js`], plugins: [fromThePage], define, language });
      define[NAMED_AS[part]] = `"/static/${built.name}"`;
      pages.push(built);
    }
    pages.push(...(await bundle(out, { entryPoints: PAGES.map((page) => `fans/${page}.js`), define, language })));
  }
  await write(out, [...alone, ...pages]);
}

// The client's types: what tsc says of it, with the documents of the API in the same file.
async function types() {
  const folder = await mkdtemp(path.join(tmpdir(), "onsale-types-"));
  const tsc = path.join(HERE, "node_modules/.bin/tsc");
  const options = ["--ignoreConfig", "--declaration", "--emitDeclarationOnly", "--target", "es2022", "--module", "esnext"];
  execFileSync(tsc, [...options, "--moduleResolution", "bundler", "--strict", "--outDir", folder, "fans/onsale.ts"], { cwd: HERE });
  const own = (await readFile(path.join(folder, "onsale.d.ts"), "utf8")).replace(/^import type .*\n/m, "");
  await rm(folder, { recursive: true });
  const bytes = Buffer.from(own + (await readFile(path.join(HERE, "fans/documents.ts"), "utf8")));
  const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 8).toUpperCase();
  return { name: `onsale-${hash}.d.ts`, bytes };
}

async function operators(out) {
  const metafile = {};
  const files = await bundle(out, { entryPoints: ["console/main.tsx"], loader: { ".svg": "file" }, metafile });
  const assets = "/console/assets/";
  const script = files.find((file) => file.name.endsWith(".js"));
  const style = files.find((file) => file.name.endsWith(".css"));
  const page = (await readFile(path.join(HERE, "console/index.html"), "utf8"))
    .replace("{{script}}", assets + script.name).replace("{{script_integrity}}", sha384(script.bytes))
    .replace("{{style}}", assets + style.name).replace("{{style_integrity}}", sha384(style.bytes));
  const about = [{ name: "index.html", bytes: Buffer.from(page) }, { name: "LICENSES.txt", bytes: Buffer.from(await licences(metafile)) }];
  await write(out, [...files, ...about]);
}

async function languages() {
  return (await readdir(path.join(HERE, WORDS))).filter((file) => file.endsWith(".json")).map((file) => path.basename(file, ".json")).sort();
}

async function texts(language) {
  const known = JSON.parse(await readFile(path.join(HERE, WORDS, `${language}.json`), "utf8"));
  return Object.fromEntries(Object.entries(known).map(([key, text]) => [`texts.${key}`, JSON.stringify(text)]));
}

// A text stands in the script where its name stood, and only the texts that the page names.
async function bundle(outdir, { metafile, language, define, ...options }) {
  const name = language ? `[name].${language}-[hash]` : "[name]-[hash]";
  const built = await esbuild.build({
    absWorkingDir: HERE,
    entryNames: name,
    chunkNames: name,
    assetNames: "[name]-[hash]",
    outdir,
    write: false,
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    external: ["/static/*"],
    charset: "utf8",
    define: { ...define, CURRENCY_DIGITS: JSON.stringify(await currencyDigits()), ...(await texts(language ?? SERVER_LANGUAGE)) },
    metafile: Boolean(metafile),
    ...options,
  });
  if (metafile) Object.assign(metafile, built.metafile);
  return built.outputFiles.map((file) => ({ name: path.basename(file.path), bytes: Buffer.from(file.contents) }));
}

async function write(out, files) {
  files.sort((one, other) => (one.name < other.name ? -1 : 1));
  await rm(out, { recursive: true, force: true });
  await mkdir(out, { recursive: true });
  const manifest = {};
  for (const { name, bytes } of files) {
    await writeFile(path.join(out, name), bytes);
    manifest[name] = { bytes: bytes.length, sha384: sha384(bytes) };
    console.log(`${name}: ${bytes.length} bytes, ${gzipSync(bytes, { level: 9 }).length} gz`);
  }
  await writeFile(path.join(out, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`);
}

// The licence texts of the packages that are in the bundle.
async function licences(metafile) {
  const inside = new Set(Object.keys(metafile.inputs).flatMap((input) => {
    const found = input.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
    return found ? [found[1]] : [];
  }));
  const texts = await Promise.all([...inside].sort().map(async (name) => {
    const folder = path.join(HERE, "node_modules", name);
    const { version, license } = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file ? await readFile(path.join(folder, file), "utf8") : "";
    return `${name} ${version} (${license})\n\n${text.trim()}\n`;
  }));
  return texts.join("\n----\n\n");
}
