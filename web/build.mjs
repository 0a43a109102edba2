// Builds the operator's console into services/console/pages/dist, or into the folder given as the first argument: hashed
// names, a compressed copy of each file, and a manifest with the digests that index.html names. The same sources make the
// same bytes.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import * as esbuild from "esbuild";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const OUT = path.resolve(process.argv[2] ?? path.join(HERE, "../services/console/pages/dist"));
const ASSETS = "/console/assets/";

const built = await esbuild.build({
  absWorkingDir: HERE,
  entryPoints: ["console/main.tsx"],
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  outdir: OUT,
  write: false,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  loader: { ".svg": "file" },
  metafile: true,
});

const sha384 = (bytes) => `sha384-${createHash("sha384").update(bytes).digest("base64")}`;
const files = built.outputFiles.map((file) => ({ name: path.basename(file.path), bytes: Buffer.from(file.contents) }));
const script = files.find((file) => file.name.endsWith(".js"));
const style = files.find((file) => file.name.endsWith(".css"));
const page = (await readFile(path.join(HERE, "console/index.html"), "utf8"))
  .replace("{{script}}", ASSETS + script.name).replace("{{script_integrity}}", sha384(script.bytes))
  .replace("{{style}}", ASSETS + style.name).replace("{{style_integrity}}", sha384(style.bytes));
files.push({ name: "index.html", bytes: Buffer.from(page) });
files.push({ name: "LICENSES.txt", bytes: Buffer.from(await licences(built.metafile)) });
files.sort((one, other) => (one.name < other.name ? -1 : 1));

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT, { recursive: true });
const manifest = {};
for (const { name, bytes } of files) {
  const br = brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } });
  const gz = gzipSync(bytes, { level: 9 });
  await writeFile(path.join(OUT, name), bytes);
  await writeFile(path.join(OUT, `${name}.br`), br);
  await writeFile(path.join(OUT, `${name}.gz`), gz);
  manifest[name] = { bytes: bytes.length, br: br.length, gz: gz.length, sha384: sha384(bytes) };
}
await writeFile(path.join(OUT, "manifest.json"), `${JSON.stringify(manifest, null, 2)}\n`);
for (const [name, one] of Object.entries(manifest)) console.log(`${name}: ${one.bytes} bytes, ${one.gz} gz, ${one.br} br`);

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
