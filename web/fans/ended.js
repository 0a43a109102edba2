// The end of a place: bought, left, expired, or sold out. One text per cause, each with a next step.
import { byId, show, trouble, write } from "./dom.js";
import { browser } from "./memory.js";

const AGAIN = "You can join again at the end of the line.";
const WORDS = {
  completed: ["You have your tickets", "Your order is complete. Its page stays yours for good."],
  expired: ["Your place has ended", AGAIN],
  "expired:unclaimed": ["Your turn has passed", `You were called, but this page was not open in time. ${AGAIN}`],
  "expired:session": ["Your time to choose has run out", `Nothing was charged, and nothing is held for you any more. ${AGAIN}`],
  left: ["You left the line", `Your place has gone. ${AGAIN}`],
  sold_out: ["Sold out", "All tickets are sold. Thank you for waiting with us."],
  closed: ["The sale is closed", "Nobody is called any more. Thank you for waiting with us."],
};
/** Room states in which nobody can join. */
const SHUT = new Set(["sold_out", "closed", "draining"]);

export class Ended {
  constructor({ eventId, line, join }) {
    Object.assign(this, { eventId, line });
    byId("rejoin").addEventListener("click", () => join().catch((problem) => trouble(problem.message)));
  }

  enter({ reason, why, text } = {}) {
    const known = WORDS[`${reason}:${why}`] ?? WORDS[reason];
    const shut = SHUT.has(reason) || SHUT.has(this.line.frame?.state);
    const [title, words] = known ?? ["This is the end of the line", text ?? ""];
    write("ended-title", title);
    write("ended-text", shut ? words.replace(AGAIN, "The line takes nobody new.") : words);
    const reference = browser(`order:${this.eventId}`);
    show("to-order", Boolean(reference));
    if (reference) byId("to-order").href = `/o/${reference}`;
    show("rejoin", !shut);
    write("rejoin", reason === "completed" ? "Join again for more" : "Join again");
    document.title = title;
  }

  leave() {}
}
