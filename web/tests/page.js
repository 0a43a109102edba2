// What the scripts of a page find of a browser when they are loaded: no more than they need. Imported before them.
const store = () => {
  const kept = new Map();
  return { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key) };
};

Object.assign(globalThis, {
  document: { getElementById: () => null, addEventListener: () => {}, hidden: false },
  window: { addEventListener: () => {} },
  sessionStorage: store(),
  localStorage: store(),
});
Object.defineProperty(globalThis, "navigator", { value: { languages: ["en-GB"], onLine: true }, configurable: true });

/** Answers `fetch` from a function of `(method, path, request)`: a body, or a problem, which has a status. */
export function answerWith(answers) {
  const asked = [];
  globalThis.fetch = async (address, { method, headers, body }) => {
    const request = { method, path: address, headers, body: body && JSON.parse(body) };
    asked.push(request);
    const answer = await answers(request, asked.length);
    const status = answer?.status >= 400 ? answer.status : 200;
    return new Response(JSON.stringify(answer), { status, headers: { "Retry-After": String(answer?.retry ?? "") } });
  };
  return asked;
}
