// The prices of an event's seats as colours and marks, the same in the map and in the list: from the highest price down,
// each has a colour, and a mark for who does not see colours. No two of the first 25 share both.

const TIERS = 5;

/** Each price of the seats of these sections: `{tier, mark}`. */
export function priceTiers(sections) {
  const seated = [...sections].filter((section) => section.kind === "seated");
  const minors = new Set(seated.flatMap((section) => Array.from({ length: section.rows }, (_, row) => priceOfRow(section, row + 1))));
  const ordered = [...minors].sort((a, b) => b - a);
  return new Map(ordered.map((minor, n) => [minor, { tier: n % TIERS, mark: (n + Math.floor(n / TIERS)) % TIERS }]));
}

/** The price of a row of a section. */
export const priceOfRow = (section, row) => levelOf(section, row)?.price_minor ?? section.regular_price_minor;

export const levelOf = ({ price_levels: levels = [] }, row) => levels.find(({ rows: [first, last] }) => first <= row && row <= last);
