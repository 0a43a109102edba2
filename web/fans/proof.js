// Proof of work before joining: if the line requires it, this browser computes for a moment, in a worker, and says so.
// The page stays usable meanwhile; the fan has nothing to do.
import { Problem } from "./api.js";
import { announce, byId, show } from "./dom.js";

/** Solves a challenge in ALTCHA's format; returns the value of the header `Onsale-Proof-Of-Work`. */
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
  const worker = new Worker(PROOF_WORKER, { type: "module" }); // its address comes from the build
  const solved = new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.solution) resolve(data.solution);
      else byId("proof-progress").value = data.progress;
    };
    worker.onerror = () => reject(new Problem({ title: texts.proof_failed }));
  });
  worker.postMessage(parameters);
  return solved.finally(() => worker.terminate());
}
