// The traits of places, in the order in which they are told; a seat has a bit for each.

export const TRAIT_IDS = ["wheelchair", "companion", "restricted_view", "easy_access"];

/** The traits that are set, from the first. */
export const traitIds = (bits) => TRAIT_IDS.filter((_, bit) => bits & (1 << bit));

/** Whether these traits are looked for: while `filter.on`, places for wheelchair users are, and those beside them. */
export const isShown = (filter, traits = []) => !filter.on || traits.includes("wheelchair") || traits.includes("companion");
