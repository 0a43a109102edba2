// Reminder mails of a hold, for fans who tick the box: before it ends, and when it has ended. Consent is per hold.
import { ask } from "./api.js";
import { byId, show, trouble, write } from "./dom.js";

export class Reminder {
  #asked = null;

  constructor() {
    for (const id of ["remind", "email"]) byId(id).addEventListener("change", () => this.#ask());
  }

  offer(reservationId) {
    if (reservationId === this.reservationId) return;
    this.reservationId = reservationId;
    byId("remind").checked = false;
    byId("remind").disabled = false;
  }

  async #ask() {
    const email = byId("email");
    if (!byId("remind").checked || !email.value || !email.checkValidity() || this.#asked === this.reservationId) return;
    try {
      await ask("POST", "/reminders", { body: { reservation_id: this.reservationId, email: email.value.trim() } });
      this.#asked = this.reservationId;
      byId("remind").disabled = true;
    } catch (problem) {
      byId("remind").checked = false;
      if (problem.slug !== "mail-disabled") return trouble(problem.message);
      write("remind-text", texts.mail_disabled);
      show("remind-row", false);
    }
  }
}
