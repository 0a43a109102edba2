// Two charts on one axis of time: the line, and the stock with its forecast. Marks show operators' changes and alarms.
// The cursor moves by mouse, touch and arrow keys; a hidden table has the same figures.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clockTime, count, minuteTime, rate, type Figure } from "./format";
import { alarmLog, changes, history, historyVersion, replayed, showSpan, shown, spanS, type Past, type Path } from "./live";

type Colour = "--c-set" | "--c-force" | "--c-called" | "--c-claimed" | "--c-waiting" | "--c-sold" | "--c-held" | "--c-free";
interface Line {
  label: string; path: Path; colour: Colour; scale: "rate" | "n"; words: (value: Figure) => string;
  dash?: number[]; fill?: boolean; steps?: boolean;
}

const LINE: Line[] = [
  { label: "Waiting", path: "line.waiting", colour: "--c-waiting", scale: "n", words: count, fill: true },
  { label: "Set", path: "rate.set_per_s", colour: "--c-set", scale: "rate", words: rate, dash: [5, 4], steps: true },
  { label: "In force", path: "rate.effective_per_s", colour: "--c-force", scale: "rate", words: rate, steps: true },
  { label: "Called/s", path: "rate.called_per_s", colour: "--c-called", scale: "rate", words: rate },
  { label: "Claimed/s", path: "rate.claimed_per_s", colour: "--c-claimed", scale: "rate", words: rate },
];
const WALL_LINE = LINE.filter((line) => line.path !== "rate.effective_per_s" && line.path !== "rate.claimed_per_s");
const STOCK: Line[] = [
  { label: "Sold", path: "stock.sold", colour: "--c-sold", scale: "n", words: count, fill: true },
  { label: "Held", path: "stock.held", colour: "--c-held", scale: "n", words: count },
  { label: "Free", path: "stock.free", colour: "--c-free", scale: "n", words: count },
];
export const SPANS: [number, string][] = [[900, "15 min"], [3600, "1 h"], [86_400, "24 h"]];
const SYNC = "onsale";
const AHEAD = 0.25; // of the width, at most, is the forecast
const TABLE_ROWS = 30;

const cursorAt = signal<number | null>(null); // index into the past
const spoken = signal("");
const plots = new Set<uPlot>();
const past = computed<Past>(() => {
  historyVersion.value;
  return replayed.value?.past ?? { ...history }; // another object, so that what depends on it is told
});

export function Charts({ wall = false }: { wall?: boolean }) {
  return (
    <div class="charts">
      <Chart name="Line" lines={wall ? WALL_LINE : LINE} wall={wall} />
      <Chart name="Stock" lines={STOCK} wall={wall} forecast />
      <p class="visually-hidden" aria-live="polite">{spoken}</p>
    </div>
  );
}

export function Spans() {
  return (
    <div class="spans" role="group" aria-label="Time shown">
      {SPANS.map(([seconds, words]) => (
        <button key={seconds} type="button" aria-pressed={spanS.value === seconds} onClick={() => showSpan(seconds)}>{words}</button>
      ))}
    </div>
  );
}

interface ChartProps { name: string; lines: Line[]; wall: boolean; forecast?: boolean }
function Chart({ name, lines, wall, forecast = false }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const id = name.toLowerCase();
  useEffect(() => draw(box.current!, lines, forecast, wall), [lines, forecast, wall]);
  return (
    <section class="panel chart" aria-labelledby={`${id}-chart`}>
      <header>
        <h2 id={`${id}-chart`}>{name}</h2>
        <Legend lines={lines} />
        {!wall && forecast && !replayed.value && <Spans />}
      </header>
      <div class="plot" ref={box} role="group" tabindex={wall ? -1 : 0} aria-roledescription="chart" aria-details={`${id}-table`}
        aria-label={`${name} chart. Arrow keys move the cursor.`} onKeyDown={(event) => move(event, lines)}
        onBlur={leave} />
      <Table id={`${id}-table`} name={name} lines={lines} />
    </section>
  );
}

function Legend({ lines }: { lines: Line[] }) {
  const { at, series } = past.value;
  const index = Math.min(cursorAt.value ?? Infinity, at.length - 1);
  return (
    <ul class="legend num">
      {lines.map((line) => (
        <li key={line.path}>
          <i class={`swatch ${line.colour.slice(2)}`} aria-hidden="true" /><span class="muted">{line.label}</span> <b>{line.words(series[line.path][index] ?? null)}</b>
        </li>
      ))}
      {cursorAt.value !== null && at[index] && <li class="at">{clockTime(at[index]!)}</li>}
    </ul>
  );
}

const tableAt = signal(0); // the table is renewed every ten seconds
setInterval(() => { tableAt.value++; }, 10_000);

function Table({ id, name, lines }: { id: string; name: string; lines: Line[] }) {
  tableAt.value;
  const { at, series } = past.peek();
  const first = Math.max(0, at.length - TABLE_ROWS);
  return (
    <div class="visually-hidden">
      <table id={id}>
        <caption>{name}: the last {TABLE_ROWS} points</caption>
        <thead><tr><th scope="col">Time</th>{lines.map((line) => <th scope="col" key={line.path}>{line.label}</th>)}</tr></thead>
        <tbody>
          {at.slice(first).map((ms, row) => (
            <tr key={ms}><th scope="row">{clockTime(ms)}</th>{lines.map((line) => <td key={line.path}>{line.words(series[line.path][first + row] ?? null)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const KEY_STEPS: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 };
function move(event: KeyboardEvent, lines: Line[]): void {
  const step = KEY_STEPS[event.key];
  const { at, series } = past.peek();
  if (!at.length || (step === undefined && event.key !== "Home" && event.key !== "End")) return;
  event.preventDefault();
  const from = cursorAt.peek() ?? at.length - (step && step < 0 ? 0 : 1);
  const index = event.key === "Home" ? 0 : event.key === "End" ? at.length - 1
    : Math.min(at.length - 1, Math.max(0, from + step!));
  for (const one of plots) one.setCursor({ left: one.valToPos(at[index]! / 1000, "x"), top: one.bbox.height / 2 / devicePixelRatio });
  cursorAt.value = index;
  spoken.value = `${clockTime(at[index]!)}: ${lines.map((line) => `${line.label} ${line.words(series[line.path][index] ?? null)}`).join(", ")}`;
}

function leave(): void {
  for (const plot of plots) plot.setCursor({ left: -10, top: -10 });
  cursorAt.value = null;
}

// The shown span, with room for the forecast at its right.
function range(): [number, number] {
  const replay = replayed.peek();
  const { at } = past.peek();
  const now = (shown.peek()?.at_ms ?? Date.now()) / 1000;
  const span = replay ? Math.max(60, now - (at[0] ?? 0) / 1000) : spanS.peek();
  const first = Math.max(now - span, Math.min(now - 60, (at[0] ?? 0) / 1000));
  const until = shown.peek()?.sell.out_latest_s ?? shown.peek()?.sell.out_earliest_s ?? 0;
  return [first, now + Math.min(until * 1.05, (now - first) * AHEAD)];
}

function colours(of: Element): (name: string) => string {
  const probe = of.appendChild(document.createElement("i"));
  const found = new Map<string, string>();
  return (name) => {
    let colour = found.get(name);
    if (!colour) {
      if (!probe.isConnected) of.appendChild(probe);
      probe.style.color = `var(${name})`;
      found.set(name, colour = getComputedStyle(probe).color);
      probe.remove();
    }
    return colour;
  };
}

const faint = (colour: string, share: number) => colour.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);
const short = new Intl.NumberFormat("en-GB", { notation: "compact", maximumFractionDigits: 1 });

function draw(box: HTMLElement, lines: Line[], forecast: boolean, wall: boolean): () => void {
  let colour = colours(box);
  const size = wall ? 20 : 12;
  const font = `${size}px ${getComputedStyle(box).fontFamily}`;
  const axis = (scale: string, side: 1 | 3, grid: boolean): uPlot.Axis => ({
    scale, side, font, stroke: () => colour("--muted"), size: wall ? 76 : 46, space: wall ? 70 : 36, gap: 6, ticks: { show: false },
    grid: { show: grid, stroke: () => colour("--line"), width: 1 },
    values: (_, splits) => splits.map((value) => short.format(value)),
  });
  const upwards: uPlot.Range.Function = (_, __, most) => [0, most > 0 ? most * 1.12 : 10];
  const scales = [...new Set(lines.map((line) => line.scale))];
  const plot = new uPlot({
    width: Math.max(100, box.clientWidth), height: Math.max(80, box.clientHeight),
    legend: { show: false },
    padding: [8, scales.length > 1 ? 0 : 12, 0, 0],
    cursor: { sync: { key: SYNC, setSeries: false }, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true, range }, ...Object.fromEntries(scales.map((scale) => [scale, { range: upwards }])) },
    axes: [
      {
        font, stroke: () => colour("--muted"), size: wall ? 40 : 26, gap: 4, space: wall ? 150 : 70,
        grid: { show: false }, ticks: { show: false },
        values: (_, splits) => splits.map((seconds) => seconds % 60 ? clockTime(seconds * 1000) : minuteTime(seconds * 1000)),
      },
      ...(scales.includes("rate") ? [axis("rate", 3, true), axis("n", 1, false)] : [axis("n", 3, true)]),
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => ({
        label: line.label, scale: line.scale, width: wall ? 3 : 1.75, spanGaps: false,
        stroke: () => colour(line.colour), points: { show: false },
        ...(line.dash && { dash: line.dash }),
        ...(line.fill && { fill: () => faint(colour(line.colour), 0.14) }),
        ...(line.steps && uPlot.paths.stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
      })),
    ],
    hooks: {
      setCursor: [(of) => { cursorAt.value = of.cursor.left !== undefined && of.cursor.left >= 0 ? of.cursor.idx ?? null : null; }],
      drawAxes: forecast ? [(of) => drawForecast(of, colour)] : [],
      draw: [(of) => drawMarks(of, colour)],
    },
  }, data(lines), box);
  const watching = new ResizeObserver(() => plot.setSize({ width: Math.max(100, box.clientWidth), height: Math.max(80, box.clientHeight) }));
  watching.observe(box);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => { colour = colours(box); plot.redraw(false); };
  scheme.addEventListener("change", recolour);
  const stopDrawing = effect(() => {
    past.value; changes.value; alarmLog.value;
    if (!document.hidden) plot.setData(data(lines));
  });
  plots.add(plot);
  return () => {
    plots.delete(plot);
    stopDrawing();
    watching.disconnect();
    scheme.removeEventListener("change", recolour);
    plot.destroy();
    cursorAt.value = null;
  };
}

function data(lines: Line[]): uPlot.AlignedData {
  const { at, series } = past.peek();
  return [at.map((ms) => ms / 1000), ...lines.map((line) => series[line.path])] as uPlot.AlignedData;
}

function inside(plot: uPlot, paint: (context: CanvasRenderingContext2D) => void): void {
  const { ctx: context, bbox } = plot;
  context.save();
  context.beginPath();
  context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  context.clip();
  paint(context);
  context.restore();
}

// From what is sold now to everything, between the earliest and the latest time.
function drawForecast(plot: uPlot, colour: (name: string) => string): void {
  const found = shown.peek();
  const { out_earliest_s: earliest, out_latest_s: latest } = found?.sell ?? {};
  if (!found || earliest == null || found.stock.sold === null || found.stock.total === null) return;
  const now = found.at_ms / 1000;
  const [x, y] = [(s: number) => plot.valToPos(s, "x", true), (n: number) => plot.valToPos(n, "n", true)];
  inside(plot, (context) => {
    context.beginPath();
    context.moveTo(x(now), y(found.stock.sold!));
    context.lineTo(x(now + earliest), y(found.stock.total!));
    context.lineTo(x(now + (latest ?? earliest * 4)), y(found.stock.total!));
    context.closePath();
    context.fillStyle = faint(colour("--c-sold"), 0.28);
    context.fill();
  });
}

// A dashed line for each operator's change, one in the colour of alarms for each alarm, and a thin one at now.
function drawMarks(plot: uPlot, colour: (name: string) => string): void {
  const [from, to] = [plot.scales.x!.min ?? 0, plot.scales.x!.max ?? 0];
  const mark = (context: CanvasRenderingContext2D, ms: number, name: string) => {
    const seconds = ms / 1000;
    if (seconds < from || seconds > to) return;
    const x = Math.round(plot.valToPos(seconds, "x", true)) + 0.5;
    const size = 4 * devicePixelRatio;
    context.strokeStyle = context.fillStyle = colour(name);
    context.beginPath();
    context.moveTo(x, plot.bbox.top);
    context.lineTo(x, plot.bbox.top + plot.bbox.height);
    context.stroke();
    context.beginPath();
    context.moveTo(x - size, plot.bbox.top);
    context.lineTo(x + size, plot.bbox.top);
    context.lineTo(x, plot.bbox.top + size * 1.5);
    context.fill();
  };
  inside(plot, (context) => {
    context.lineWidth = devicePixelRatio;
    context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const change of changes.peek()) mark(context, change.at_ms, "--accent");
    for (const alarm of alarmLog.peek()) mark(context, alarm.since_ms, alarm.severity === "critical" ? "--bad" : "--warn");
  });
}
