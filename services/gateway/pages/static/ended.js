// The end of a place: bought, left, expired, or nothing left to buy. Always with a way on.
import { byId, show, trouble, write } from "./dom.js";
import { browser } from "./memory.js";

const WORDS = {
  completed: ["You have your tickets", "Your order is complete. Its page stays yours for good."],
  expired: ["Your turn has passed", "You were called, but nobody came. You can join again at the end of the line."],
  left: ["You left the line", "Your place has gone. You can join again at the end of the line."],
  sold_out: ["Sold out", "Every ticket has found an owner. Thank you for waiting with us."],
  closed: ["The sale is closed", "Nobody is called any more. Thank you for waiting with us."],
};

export class Ended {
  constructor({ eventId, join }) {
    this.eventId = eventId;
    byId("rejoin").addEventListener("click", () => join().catch((problem) => trouble(problem.message)));
  }

  enter({ reason, text } = {}) {
    const [title, words] = WORDS[reason] ?? ["This is the end of the line", ""];
    write("ended-title", title);
    write("ended-text", text ?? words);
    const reference = browser(`order:${this.eventId}`);
    show("to-order", Boolean(reference));
    if (reference) byId("to-order").href = `/o/${reference}`;
    show("rejoin", reason !== "sold_out" && reason !== "closed");
    write("rejoin", reason === "completed" ? "Join again for more" : "Join again");
    document.title = title;
  }

  leave() {}
}
