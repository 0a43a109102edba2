// The server's time in the browser: deadlines are the server's, and a phone's clock may be minutes off.

let offsetMs = 0;
let bestRoundTripMs = Infinity;

/** Sets the offset from a response's Date header. The header has whole seconds, so add half a second on average. */
export function observe(response, sentMs, receivedMs) {
  const serverMs = Date.parse(response.headers.get("Date") ?? "");
  const roundTripMs = receivedMs - sentMs;
  if (Number.isNaN(serverMs) || roundTripMs > bestRoundTripMs) return;
  bestRoundTripMs = roundTripMs;
  offsetMs = serverMs + 500 - (sentMs + receivedMs) / 2;
  if (Math.abs(offsetMs) < 1500) offsetMs = 0;
}

export const now = () => Date.now() + offsetMs;

export const secondsUntil = (iso) => (Date.parse(iso) - now()) / 1000;

/** Calls `render(seconds)` every second and `done()` once at the end; returns a function that stops it. */
export function countdown(iso, render, done = () => {}) {
  const tick = () => {
    const seconds = secondsUntil(iso);
    render(Math.max(0, seconds));
    if (seconds > 0) return;
    clearInterval(timer);
    done();
  };
  const timer = setInterval(tick, 1000);
  queueMicrotask(tick);
  return () => clearInterval(timer);
}
