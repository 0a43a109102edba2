// Texts in the page's language: the build puts `shared/words/<language>.json` in the place of "words", and only the texts
// that the page names. Numbers and dates are written as in the fan's region, if the browser speaks that language.

/** The fan's own form of the page's language, such as en-GB or es-MX. */
export const LOCALE = navigator.languages.find((tag) => tag.split("-")[0] === texts.language) ?? texts.locale;

const NUMBER = new Intl.NumberFormat(LOCALE);
const PLURALS = new Intl.PluralRules(LOCALE);
/** In a text from right to left each value keeps its own direction, and moves nothing around it; one that was made of such
 * a text has that of the text, since first letters inside marks do not count. */
const [OWN, TEXTS, CLOSE] = texts.direction === "rtl" ? ["\u2068", "\u2067", "\u2069"] : ["", "", ""];

export const count = (number) => NUMBER.format(number);

/** The text with its values in place of `{name}`; of a text with plural forms, the form of `n`. */
export function fill(text, values = {}) {
  const form = typeof text === "string" ? text : (text[PLURALS.select(values.n)] ?? text.other);
  return form.replace(/\{(\w+)\}/g, (_, name) => shown(values[name]));
}

const shown = (value) => (typeof value === "number" ? count(value) : `${String(value).includes(OWN) ? TEXTS : OWN}${value}${CLOSE}`);
