// Ways to pay: the sandbox's rehearsals where the sandbox is offered, and every other provider's own page.
// Card data is never typed into pages of ours: whoever pays by card does so on the provider's.
import { ask } from "./api.js";
import { byId, element, show } from "./dom.js";

const REHEARSAL = "sandbox";
let offered = false;

/** Makes the choice what this sale offers, once; until it is known, or if it cannot be, the page stays as it came. */
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
    choice.append(element("option", { value: `${name}:redirect` }, `Card or wallet, on the page of ${title}`));
  }
  if (rehearses) return;
  document.querySelector('label[for="method"]').textContent = "Payment";
  if (byId("method-note")) show("method-note", false);
}

/** What to ask for; the fan comes back to the order's own page. */
export function chosenPayment() {
  const { value } = byId("method");
  const [provider, method] = value.includes(":") ? value.split(":") : [REHEARSAL, value];
  return { provider, method, ...(method === "redirect" && { return_url: `${location.origin}/o/{reference}` }) };
}
