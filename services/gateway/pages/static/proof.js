// Proof of work at the door: when the line asks for it, this browser computes a moment, in a worker, and says so.
// The page stays usable meanwhile; nothing is asked of the fan.
import { Problem } from "./api.js";
import { announce, byId, show } from "./dom.js";

/** Solves a challenge in ALTCHA's format; the answer is what the header `Onsale-Proof-Of-Work` carries. */
export async function prove(challenge) {
  show("proof");
  byId("proof-progress").value = 0;
  announce(byId("proof-text").textContent);
  try {
    const solution = await solve(challenge.parameters);
    return btoa(JSON.stringify({ challenge, solution }));
  } finally {
    show("proof", false);
  }
}

function solve(parameters) {
  const worker = new Worker(new URL("./proof_worker.js", import.meta.url), { type: "module" });
  const solved = new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.solution) resolve(data.solution);
      else byId("proof-progress").value = data.progress;
    };
    worker.onerror = () => reject(new Problem({ title: "This browser could not prove that it is none of the robots." }));
  });
  worker.postMessage(parameters);
  return solved.finally(() => worker.terminate());
}
