// Where mail about an order goes, that it could not be sent, and the correction of the address.
import { ask } from "./api.js";
import { announce, byId, show, trouble, write } from "./dom.js";
import { EmailField } from "./email.js";
import { fill } from "./words.js";

const CHANGEABLE = new Set(["pending", "review", "confirmed", "partially_refunded"]);

export class Address {
  /** `path` is the order's; calls `changed(order)` with the server's answer. */
  constructor(path, changed) {
    Object.assign(this, { path, changed });
    this.field = new EmailField(() => this.#save());
    byId("address-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  render(order) {
    const { email } = order.customer;
    show("address", CHANGEABLE.has(order.status) && Boolean(email));
    write("address-text", fill(order.mail_failed ? texts.address_mail_failed : texts.address_mails_to, { email }));
    byId("address-text").className = order.mail_failed ? "notice" : "small";
  }

  async #save() {
    if (byId("address-save").ariaBusy === "true") return;
    trouble(null);
    byId("address-save").ariaBusy = "true";
    try {
      const order = await ask("POST", `${this.path}/email`, { body: this.field.fields });
      byId("address-change").open = false;
      byId("email").value = "";
      this.changed(order);
      announce(fill(texts.address_changed, { email: order.customer.email }));
    } catch (problem) {
      if (!this.field.asks(problem)) trouble(problem.message);
    } finally {
      byId("address-save").ariaBusy = "false";
    }
  }
}
