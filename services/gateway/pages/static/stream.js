// One EventSource with a memory of how it is doing: "live", "reconnecting", or "polling" when streams do not get through.

const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 60_000;

export class Stream {
  #source = null;
  #timer = null;
  #retryMs = FIRST_RETRY_MS;
  state = "closed";
  heardMs = 0;

  /** `handlers` maps event names to functions of the parsed data; `changed(state)` hears of interruptions and their end. */
  constructor(url, handlers, changed) {
    Object.assign(this, { url, handlers, changed });
  }

  open() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    this.#source = new EventSource(this.url);
    this.#source.onopen = () => this.#become("live");
    this.#source.onerror = () => this.#interrupted();
    for (const [name, hear] of Object.entries(this.handlers)) {
      this.#source.addEventListener(name, (message) => {
        this.heardMs = Date.now();
        this.#become("live");
        hear(JSON.parse(message.data));
      });
    }
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.state = "closed";
  }

  /** A sleeping phone leaves sockets that look open; whoever finds out that the stream is behind calls this. */
  reopen() {
    this.close();
    this.open();
  }

  #interrupted() {
    if (this.#source.readyState === EventSource.CONNECTING) {
      if (this.state !== "polling") this.#become("reconnecting");
      return;
    }
    this.close();
    this.#become("polling");
    this.#timer = setTimeout(() => this.open(), this.#retryMs * (1 + Math.random()));
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
  }

  #become(state) {
    if (state === "live") this.#retryMs = FIRST_RETRY_MS;
    if (state === this.state) return;
    this.state = state;
    this.changed(state);
  }
}
