// Payment methods: test payments where the sandbox is offered, and the page of every other provider.
// Card data is never entered on our pages: cards are entered on the provider's page.
import { ask } from "./api.js";
import { byId, element, show } from "./dom.js";
import { fill } from "./words.js";

const REHEARSAL = "sandbox";
let offered = false;

/** Fills the choice with what this sale offers, once; until then, or without an answer, the page stays as it is. */
export async function offerWays() {
  if (offered) return;
  offered = true;
  const { providers = [] } = await ask("GET", "/payments/providers").catch(() => ({}));
  if (!providers.length) return;
  const choice = byId("method");
  const rehearses = providers.some(({ name }) => name === REHEARSAL);
  if (!rehearses) choice.replaceChildren();
  for (const { name, methods } of providers) {
    if (name === REHEARSAL || !methods.includes("redirect")) continue;
    const title = name.charAt(0).toUpperCase() + name.slice(1);
    choice.append(element("option", { value: `${name}:redirect` }, fill(texts.pay_on_page, { name: title })));
  }
  if (rehearses) return;
  document.querySelector('label[for="method"]').textContent = texts.payment;
  if (byId("method-note")) show("method-note", false);
}

/** The payment part of the request; the provider sends the fan back to the order page. */
export function chosenPayment() {
  const { value } = byId("method");
  const [provider, method] = value.includes(":") ? value.split(":") : [REHEARSAL, value];
  return { provider, method, ...(method === "redirect" && { return_url: `${location.origin}/o/{reference}` }) };
}
