// The client of this page: it observes the server's clock, has its own words for problems, and brings the first answers.
import { observe } from "./clock.js";
import { Client } from "./onsale.ts";

export { Problem, freshKey, pause } from "./onsale.ts";

export const client = /* @__PURE__ */ new Client("", { observe, explain });

/** Answers that came with the page, by path, each good for one request: the first view asks for nothing. */
const brought = new Map(Object.entries(JSON.parse(document.getElementById("facts")?.textContent || "{}")));

/** Sends a request and returns the JSON body. `patience`: how often to retry while the server is busy or silent. */
export async function ask(method, path, request) {
  if (method === "GET" && brought.has(path)) return take(path);
  return client.ask(method, path, request);
}

function take(path) {
  const answer = brought.get(path);
  brought.delete(path);
  return answer;
}

/** The server's texts are English. A page in another language has its own for what a fan can meet, in a file that few need;
 * its address comes from the build. */
async function explain(problem) {
  if (!problem) return { title: texts.problem_no_connection };
  if (!PROBLEM_TEXTS) return problem.detail || problem.title ? {} : { detail: texts.problem_unnamed };
  const { PROBLEMS = {} } = await import(PROBLEM_TEXTS).catch(() => ({}));
  return { detail: PROBLEMS[problem.type?.split("/").pop()] ?? texts.problem_unnamed };
}
