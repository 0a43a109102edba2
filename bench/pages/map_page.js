// Runs inside the page, as steps whose processor time is read from outside: draws, moves and changes the map, and a
// section's list as it was before there was a map. `bench` holds what a step left for the next.
const frame = () => new Promise((resume) => requestAnimationFrame(resume));
const shown = () => frame().then(frame);
const prices = Object.assign(new EventTarget(), { one: (minor) => `€${minor / 100}` });
const filter = Object.assign(new EventTarget(), { on: false });
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const TURN = { available: "reserved", reserved: "sold", sold: "available" };

export async function load() {
  const names = ["hall/geometry.js", "hall/seat_codes.js", "hall/seat_map.js", "price_tiers.js", "seats.js"];
  bench.parts = Object.assign({}, ...(await Promise.all(names.map((name) => import(`/${name}`)))));
  await shown();
}

/** Two frames, or one, and nothing else. */
export const rest = shown;
export const restOnce = frame;

/** From data to the overview on the screen. */
export async function drawOverview() {
  const { Geometry, decodeState, SeatMap, priceTiers } = bench.parts;
  const { geometry: data, details, state } = bench.hall;
  const geometry = new Geometry(data);
  const states = Object.assign(new EventTarget(), { codes: decodeState(bytes(state).buffer).codes, isKept: () => false });
  const stock = Object.assign(new EventTarget(), { sections: new Map(details.map((one) => [one.section_id, one])) });
  const tiers = priceTiers(details);
  const minors = new Map(details.map((one) => [one.section_id, one.regular_price_minor]));
  bench.map = new SeatMap({
    geometry, states, stock, prices, filter, tierOf: (section) => tiers.get(minors.get(section.id)), factsOf: () => "A seat",
    own: () => false, picked() {}, standing() {}, moved() {},
  });
  document.getElementById("place").append(bench.map.node);
  bench.map.allow(true);
  bench.map.overview.update();
  await shown();
  return geometry.count;
}

/** From there to seats on the screen: all of them, as dots, at a factor of little more than 1. */
export async function drawSeats({ factor }) {
  const { view, seats } = bench.map;
  seats.restMs = 1e6; // steps are further apart than frames
  view.fit();
  view.zoom(view.width / 2, view.height / 2, factor);
  bench.map.allow(true);
  seats.paintNow();
  await shown();
}

/** One frame of a movement by nine points. */
export async function pan({ n }) {
  bench.map.view.move(9 * Math.cos(n / 12), 9 * Math.sin(n / 12));
  bench.map.seats.paintNow();
  await frame();
}

/** These many seats change in one frame. */
export async function change({ n, seats }) {
  const { codes } = bench.map.states;
  const changed = Array.from({ length: seats }, (_, at) => (at * 97 + n * 13) % codes.length);
  for (const seat of changed) codes[seat] = (codes[seat] + 1) % 3;
  bench.map.seats.paintSeats(changed);
  bench.map.seats.paintNow();
  await frame();
}

/** A section by the list. */
export async function drawList() {
  const basket = Object.assign(new EventTarget(), { seats: new Map() });
  bench.sections = new Map(bench.hall.details.map((one) => [one.section_id, one]));
  bench.plan = new bench.parts.SeatPlan({ stock: { sections: bench.sections }, basket, prices, filter, picked() {} });
  bench.seats = bench.page.seats;
  bench.plan.render(bench.hall.details[0].section_id, bench.seats, bench.sections);
  await shown();
}

/** The next answer of the list, in which these many seats are others. */
export async function changeList({ seats }) {
  bench.seats = bench.seats.map((seat, at) => (at < seats ? { ...seat, status: TURN[seat.status] } : seat));
  bench.plan.render(bench.hall.details[0].section_id, bench.seats, bench.sections);
  await frame();
}
