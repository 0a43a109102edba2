// The digits of the currencies that do not have two, from the lines of the server's table.
import { readFile } from "node:fs/promises";

const TABLE = new URL("../shared/rules/currencies.py", import.meta.url);

export async function currencyDigits() {
  const lines = [...(await readFile(TABLE, "utf8")).matchAll(/^([A-Z]{3}) (\d) \S/gm)];
  return Object.fromEntries(lines.filter(([, , digits]) => digits !== "2").map(([, code, digits]) => [code, Number(digits)]));
}
