// One EventSource with its state: "live", "reconnecting", "crowded" if the server rejected it, or "polling" if streams
// do not get through. Its user polls while it is not live. A rejected or broken stream reconnects when the server said.
// One that is silent for longer than the heartbeat allows is not live.

const ERRORS_MAX = 3;
const FIRST_FRAME_MS = 10_000;
const STEADY_MS = 500;
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 60_000;
/** The server ends every silence after at most 18 s. */
export const SILENT_MS = 25_000;

export class Stream {
  #source = null;
  #timer = null;
  #silence = null;
  #begun = false;
  #away = false;
  #errors = 0;
  #retryMs = FIRST_RETRY_MS;
  state = "closed";
  heardMs = 0;

  /** `handlers`: event names to functions of the parsed data; `changed(state)` is called at interruptions and their end. */
  constructor(url, handlers, changed) {
    Object.assign(this, { url, handlers, changed });
  }

  open() {
    if (this.#source) return;
    clearTimeout(this.#timer);
    this.#source = new EventSource(this.url);
    this.#source.onopen = () => this.#opened();
    this.#source.onerror = () => this.#interrupted();
    this.#source.addEventListener("turned_away", () => this.#turnedAway());
    for (const [name, hear] of Object.entries({ beat: () => {}, ...this.handlers })) {
      this.#source.addEventListener(name, (message) => {
        clearTimeout(this.#silence);
        this.heardMs = Date.now();
        this.#begun = true;
        this.#away = false;
        this.#errors = 0;
        this.#become("live");
        hear(JSON.parse(message.data));
      });
    }
  }

  /** Nothing arrived for longer than the server is ever silent: a sleeping phone leaves sockets that look open. */
  get silent() {
    return this.state === "live" && Date.now() - this.heardMs > SILENT_MS;
  }

  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#source?.close();
    this.#source = null;
    this.#begun = this.#away = false;
    this.state = "closed";
  }

  /** Called when the stream is found to be dead. */
  reopen() {
    this.close();
    this.open();
    this.#become("reconnecting");
  }

  /** A first stream begins with a snapshot: without one, something between server and browser holds it back. A resumed
   * stream may have nothing to send; it is live unless it is rejected at once. */
  #opened() {
    clearTimeout(this.#silence);
    this.#silence = this.#begun
      ? setTimeout(() => this.#steady(), STEADY_MS)
      : setTimeout(() => this.#fallBack(), FIRST_FRAME_MS);
  }

  #steady() {
    this.heardMs = Date.now();
    this.#become("live");
  }

  /** The stream ends after this, and the browser reconnects when the server said. */
  #turnedAway() {
    clearTimeout(this.#silence);
    this.#away = true;
    this.#become("crowded");
  }

  #interrupted() {
    clearTimeout(this.#silence);
    this.#errors += 1;
    if (this.#away && this.#source.readyState === EventSource.CONNECTING) return this.#become("crowded");
    if (this.#source.readyState !== EventSource.CONNECTING) return this.#fallBack();
    return this.#become(this.#errors < ERRORS_MAX ? "reconnecting" : "polling");
  }

  #fallBack() {
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
