// Six figures that say how the sale goes. A tile whose part was not heard lately is grey and says so.
import type { ComponentChildren } from "preact";
import { band, clockTime, count, duration, minuteTime, percent, rate, reasonWords, UNKNOWN } from "./format";
import { ages, clockMs, history, historyVersion, isStale, lastHeardMs, replayed, shown, type Part, type Path } from "./live";
import type { Vitals } from "./documents";

const WINDOW_MS = 60_000;
const SECONDS_MATTER_S = 300;
const CALLS_OVER_MS = 10_000;
const LATE_S = 30;

// Why the figures of a part cannot be trusted now, or null.
export function silence(part: Part): string | null {
  if (replayed.value) return null;
  const late = (clockMs.value - lastHeardMs.value) / 1000;
  if (lastHeardMs.value && late > 3) return `console not heard for ${duration(Math.round(late))}`;
  const age = ages.value[part];
  if (!isStale(age)) return null;
  return age === null ? `${part} not heard yet` : `${part} not heard for ${duration(Math.round(age))}`;
}

interface TileProps {
  name: string; part: Part; value: string; unit?: string; children: ComponentChildren; tone?: "warn" | "bad" | undefined;
}
function Tile({ name, part, value, unit, children, tone }: TileProps) {
  const silent = silence(part) ?? (value === UNKNOWN && shown.value?.without_reports.includes(part) ? "not counted: reports are off" : null);
  return (
    <section class={`panel tile${silent ? " stale" : ""}${tone && !silent ? ` ${tone}` : ""}`} data-tile={name}>
      <h2>{name}</h2>
      <p class="figure num" data-figure>{value}{unit && value !== UNKNOWN && <small> {unit}</small>}</p>
      {silent ? <p class="silent">{silent}</p> : children}
    </section>
  );
}

export function Tiles() {
  const vitals = shown.value;
  if (!vitals) return null;
  return (
    <div class="tiles">
      <Waiting vitals={vitals} />
      <Admitted vitals={vitals} />
      <Wait vitals={vitals} />
      <Sold vitals={vitals} />
      <SellsOut vitals={vitals} />
      <Orders vitals={vitals} />
    </div>
  );
}

function Waiting({ vitals: { line, at_ms } }: { vitals: Vitals }) {
  const trend = change("line.waiting", line.waiting, at_ms);
  return (
    <Tile name="Waiting" part="queue" value={count(line.waiting)}>
      <p class="muted num">{trend === null ? `${count(line.called)} called so far` : trend === 0 ? "steady" : `${signed(trend)} in a minute`}</p>
      {!!line.waiting && line.live_share !== null && <p class="muted num">{Math.round(line.live_share * 100)} % are still there</p>}
    </Tile>
  );
}

// Calls a second: as the queue tells, else by how many were called over the last seconds.
export function calledPerS({ rate: { called_per_s }, line: { called }, at_ms }: Vitals): number | null {
  const then = called_per_s === null ? before("line.called", at_ms, CALLS_OVER_MS) : null;
  return called === null || then === null ? called_per_s : (called - then.value) * 1000 / (at_ms - then.at);
}

function Admitted({ vitals }: { vitals: Vitals }) {
  const { set_per_s, effective_per_s, why } = vitals.rate;
  const less = set_per_s !== null && effective_per_s !== null && effective_per_s < set_per_s;
  return (
    <Tile name="Admitted" part="queue" value={rate(calledPerS(vitals))} unit="/s" tone={why && less ? "warn" : undefined}>
      <p class="muted num">of {rate(set_per_s)} set{less && `, ${rate(effective_per_s)} in force`}</p>
      {why && <p class="why">{reasonWords(why)}</p>}
    </Tile>
  );
}

function Wait({ vitals: { wait } }: { vitals: Vitals }) {
  return (
    <Tile name="Wait" part="queue" value={duration(wait.p50_s)}>
      {wait.p95_s === null ? <p class="muted">nobody was called lately</p> : (
        <>
          <p class="muted num">half waited less</p>
          <p class="muted num">95 % under {duration(wait.p95_s)}</p>
        </>
      )}
    </Tile>
  );
}

function Sold({ vitals: { stock, sell } }: { vitals: Vitals }) {
  const left = stock.free === null || stock.held === null ? null : stock.free + stock.held;
  return (
    <Tile name="Sold" part="inventory" value={percent(stock.sold, stock.total)}>
      <StockBar sold={stock.sold} held={stock.held} total={stock.total} />
      <p class="muted num">{count(left)} left{sell.per_min !== null && ` · ${count(sell.per_min)} a minute`}</p>
    </Tile>
  );
}

export function StockBar({ sold, held, total }: { sold: number | null; held: number | null; total: number | null }) {
  const share = (part: number | null) => ({ inlineSize: `${total ? (part ?? 0) / total * 100 : 0}%` });
  return <div class="stockbar" aria-hidden="true"><i class="sold" style={share(sold)} /><i class="held" style={share(held)} /></div>;
}

// When everything is sold, as a time from now, and the reason if that is unknown.
export function sellOut({ stock, sell, at_ms }: Vitals): { value: string; words: string } {
  if (stock.total !== null && stock.sold === stock.total) return { value: "Sold out", words: "every ticket is sold" };
  if (replayed.value) return { value: UNKNOWN, words: "not kept for a replay" };
  if (stock.total === null) return { value: UNKNOWN, words: "the stock is unknown" };
  const { out_earliest_s: from, out_latest_s: to } = sell;
  if (from === null) {
    return { value: UNKNOWN, words: sell.per_min ? "known after more orders" : "nothing was sold in the last minute" };
  }
  const time = to !== null && to < SECONDS_MATTER_S ? clockTime : minuteTime;
  const [first, last] = [time(at_ms + from * 1000), to === null ? null : time(at_ms + to * 1000)];
  return { value: band(from, to), words: last === null ? `${first} or later` : first === last ? `at ${first}` : `${first} – ${last}` };
}

function SellsOut({ vitals }: { vitals: Vitals }) {
  const { value, words } = sellOut(vitals);
  return <Tile name="Sells out in" part="orders" value={value}><p class="muted num">{words}</p></Tile>;
}

function Orders({ vitals: { orders } }: { vitals: Vitals }) {
  const late = (orders.oldest_due_s ?? 0) > LATE_S;
  return (
    <Tile name="Orders pending" part="orders" value={count(orders.pending)} tone={late ? "warn" : undefined}>
      <p class="muted num">{count(orders.confirmed)} confirmed</p>
      {orders.due !== null && <p class="muted num">{orders.due ? `${count(orders.due)} due, the oldest for ${duration(orders.oldest_due_s)}` : "nothing is due"}</p>}
    </Tile>
  );
}

const signed = (value: number) => `${value > 0 ? "+" : "−"}${count(Math.abs(value))}`;

// The change of a figure over the last minute; null if the past is shorter.
function change(path: Path, now: number | null, atMs: number): number | null {
  const then = before(path, atMs, WINDOW_MS);
  return now === null || then === null ? null : now - then.value;
}

// A figure as it was that long ago, or a little longer, and when.
function before(path: Path, atMs: number, agoMs: number): { at: number; value: number } | null {
  historyVersion.value;
  const { at, series } = replayed.value?.past ?? history;
  const index = at.findLastIndex((ms) => ms <= atMs - agoMs);
  const value = series[path][index] ?? null;
  return value === null || at[index]! < atMs - 2 * agoMs ? null : { at: at[index]!, value };
}
