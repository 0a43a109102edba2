// The e-mail field: if the server thinks that its domain was mistyped, the fan is asked once and decides.
import { byId, show, write } from "./dom.js";
import { fill } from "./words.js";

export class EmailField {
  #kept = null;

  /** Calls `decided()` when the fan has answered: the field then has the address to use. */
  constructor(decided) {
    byId("email-take").addEventListener("click", () => this.#decide(this.meant, decided));
    byId("email-keep").addEventListener("click", () => this.#decide(this.address, decided));
    byId("email").addEventListener("input", () => show("email-meant", false));
  }

  get address() {
    return byId("email").value.trim();
  }

  /** What a request says of the address: check its spelling, unless the fan is sure of it. */
  get fields() {
    return { email: this.address, ...(this.#kept !== this.address && { check_spelling: true }) };
  }

  /** Asks about the address of this problem; false for any other problem. */
  asks(problem) {
    if (problem.slug !== "email-likely-mistyped") return false;
    this.meant = problem.members.suggestion;
    write("email-meant-text", fill(texts.email_meant, { email: this.meant }));
    write("email-take", fill(texts.email_take, { email: this.meant }));
    write("email-keep", fill(texts.email_keep, { email: this.address }));
    show("email-meant");
    byId("email-take").focus();
    return true;
  }

  #decide(address, decided) {
    byId("email").value = address;
    this.#kept = address;
    show("email-meant", false);
    decided();
  }
}
