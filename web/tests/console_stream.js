// What the console's figures need of a browser. Imported before them.
export const streams = [];

globalThis.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor(address) { super(); this.address = address; streams.push(this); }
  close() { this.readyState = 2; }
  send(name, data) { this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) })); }
};
globalThis.fetch = async () => new Response("{}", { status: 503 }); // nothing was kept
const every = globalThis.setInterval;
globalThis.setInterval = (...given) => every(...given).unref();
