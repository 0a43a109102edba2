// Several tabs of one fan: one of them leads. It alone keeps the stream, and tells the others what it hears. Where the
// browser has no locks, which need HTTPS, each tab leads.

export class Tabs {
  #channel = null;
  #resign = null;
  leads = false;

  /** Calls `heard(kind, data)` for what another tab tells. */
  constructor(name, heard) {
    this.name = `onsale:${name}`;
    if (!navigator.locks || !window.BroadcastChannel) return;
    this.#channel = new BroadcastChannel(this.name);
    this.#channel.onmessage = ({ data: [kind, data] }) => heard(kind, data);
  }

  tell(kind, data) {
    this.#channel?.postMessage([kind, data]);
  }

  /** Calls `lead()` as soon as no other tab leads. */
  async compete(lead) {
    if (this.#resign) return;
    const waiting = new AbortController();
    const held = new Promise((end) => (this.#resign = end));
    const begin = () => {
      this.leads = true;
      lead();
      return held;
    };
    held.then(() => waiting.abort());
    if (!this.#channel) return void begin();
    try {
      await navigator.locks.request(this.name, { signal: waiting.signal }, begin);
    } catch (problem) {
      if (problem.name !== "AbortError") begin(); // storage is blocked, and locks with it
    }
  }

  resign() {
    this.#resign?.();
    this.#resign = null;
    this.leads = false;
  }
}
