// The seller's brand on the order page, which learns of it with the order.
import { byId, element, show } from "./dom.js";

const LINKS = {
  help_url: texts.seller_help,
  terms_url: texts.seller_terms,
  imprint_url: texts.seller_imprint,
  privacy_url: texts.seller_privacy,
};
let worn = false;

export function wear(brand) {
  if (!brand || worn) return;
  worn = true;
  const styles = [BRANDED, brand.stylesheet].filter(Boolean); // the address of the first comes from the build
  document.head.append(...styles.map((href) => element("link", { rel: "stylesheet", href })));
  if (brand.name) byId("mark").replaceChildren(logo(brand) ?? brand.name);
  const links = Object.entries(LINKS).filter(([url]) => brand[url]);
  byId("seller").replaceChildren(...links.map(([url, text]) => element("li", {}, element("a", { href: brand[url] }, text))));
  show("seller-links", links.length > 0);
}

function logo({ logo: picture }) {
  return picture && element("img", { class: "logo", src: picture.url, width: picture.width, height: picture.height, alt: picture.alt });
}
