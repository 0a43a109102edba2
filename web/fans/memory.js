// What this browser stores between reloads: ids, never a token. In private mode it may be lost; all still works.

function remember(storage, key, value) {
  try {
    if (value === undefined) return JSON.parse(storage().getItem(`onsale:${key}`));
    if (value === null) storage().removeItem(`onsale:${key}`);
    else storage().setItem(`onsale:${key}`, JSON.stringify(value));
  } catch {
    return value ?? null;
  }
  return value;
}

/** For this tab: read with one argument, written with two, deleted with `null`. */
export const tab = (key, value) => remember(() => sessionStorage, key, value);

/** For this browser, so that a second tab finds the same reservation and the same order. */
export const browser = (key, value) => remember(() => localStorage, key, value);
