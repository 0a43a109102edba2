// Runs a script of the pages outside a browser: standard input has its file, what to do with it, and with what.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";

const web = path.resolve(process.argv[2]);
const esbuild = createRequire(`${web}/build.mjs`)("esbuild");
const { currencyDigits } = await import(`${web}/currency_digits.mjs`);

Object.defineProperty(globalThis, "navigator", { value: { languages: ["en"] }, configurable: true });

async function loaded(file) {
  const texts = JSON.parse(await readFile(path.join(web, "../shared/words/en.json"), "utf8"));
  const define = Object.fromEntries(Object.entries(texts).map(([key, text]) => [`texts.${key}`, JSON.stringify(text)]));
  define.CURRENCY_DIGITS = JSON.stringify(await currencyDigits());
  const built = await esbuild.build({ absWorkingDir: web, define, entryPoints: [file], format: "esm", bundle: true, write: false });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}`);
}

/** A suite that gives these answers, one a request: `[status, document]`, or null for none. */
function suite(answers) {
  const requests = [];
  globalThis.fetch = async (address, { method, headers, body }) => {
    requests.push({ request: `${method} ${address}`, key: headers["Idempotency-Key"], body: body && JSON.parse(body) });
    const [status, document] = answers.shift() ?? (() => { throw new TypeError("no answer"); })();
    return new Response(JSON.stringify(document), { status, headers: { "Retry-After": "0.001" } });
  };
  return requests;
}

const problemOf = (problem) => ({ problem: problem.slug ?? String(problem), unknown: problem.unknown });

const ACTIONS = {
  minor: ({ minorOf }, typed) => typed.map(([text, currency]) => minorOf(text, currency)),
  check: async ({ check }, [documents, place]) => Promise.all(documents.map((told) => check(told, place))),
  placeByLine: ({ placeByLine }, asked) => asked.map(([place, line, since]) => placeByLine(place, line, since)),
  write: async ({ Client }, answers) => {
    const requests = suite(answers);
    const answer = await new Client("", { cookies: true }).ask("POST", "/orders", { key: "k", body: {} }).catch(problemOf);
    return { requests, answer };
  },
  order: async ({ Client, Fan }, answers) => {
    const [requests, fan] = [suite(answers), new Fan(new Client("", { cookies: true }), "e")];
    fan.checkoutKey = "checkout";
    await fan.order({ reservation_id: "held" }, {}, {});
    return requests;
  },
  join: async ({ Client, Fan }, answers) => {
    const [requests, fan] = [suite(answers), new Fan(new Client("", { cookies: true }), "e")];
    const answer = await fan.join({}, { key: "k", prove: async () => "proof" }).catch(problemOf);
    return { requests, answer };
  },
};

let input = "";
for await (const part of process.stdin) input += part;
const { file, action, given } = JSON.parse(input);
console.log(JSON.stringify(await ACTIONS[action](await loaded(file), given)));
