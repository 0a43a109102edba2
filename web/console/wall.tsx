// The wallboard: a few figures for a screen on a wall, readable at five metres. No names, no controls, always dark.
import { useEffect } from "preact/hooks";
import { Age, Proof, StatePill } from "./bar";
import { Charts } from "./charts";
import { clockTime, count, duration, percent, rate } from "./format";
import { alarms, clockMs, shown, snapshot, stop, unknownEvent, vitals, watch, type Part } from "./live";
import { NoEvent } from "./screen";
import { calledPerS, sellOut, silence, StockBar } from "./tiles";

export function Wall({ eventId }: { eventId: string }) {
  useEffect(() => {
    document.documentElement.classList.add("dark");
    watch(eventId);
    return () => { document.documentElement.classList.remove("dark"); stop(); };
  }, [eventId]);
  useEffect(() => { document.title = `${snapshot.value?.name ?? eventId} · Onsale wall`; }, [eventId, snapshot.value?.name]);
  if (unknownEvent.value) return <NoEvent eventId={eventId} />;
  const found = shown.value;
  return (
    <div class="wall">
      <header>
        <h1>{snapshot.value?.name ?? eventId}</h1>
        <StatePill state={found?.room.state ?? null} />
        <span class="spacer" />
        <span class="clock num">{clockTime(clockMs.value)}</span>
      </header>
      {found && vitals.value ? (
        <main>
          <div class="walltiles">
            <Big name="Waiting" part="queue" value={count(found.line.waiting)} words={found.wait.p50_s === null ? `${count(found.line.called)} called` : `half wait under ${duration(found.wait.p50_s)}`} />
            <Big name="Admitted a second" part="queue" value={rate(calledPerS(found))} words={`of ${rate(found.rate.set_per_s)} set`} />
            <Big name="Sold" part="inventory" value={percent(found.stock.sold, found.stock.total)} words={`${count((found.stock.free ?? 0) + (found.stock.held ?? 0))} left`}>
              <StockBar sold={found.stock.sold} held={found.stock.held} total={found.stock.total} />
            </Big>
            <Big name="Sells out in" part="orders" value={sellOut(found).value} words={sellOut(found).words} />
          </div>
          <Charts wall />
        </main>
      ) : <main><p class="muted">Waiting for the first figures…</p></main>}
      <footer>
        {alarms.value.length > 0
          ? <p class={alarms.value[0]!.severity === "critical" ? "bad" : "warn"} role="status">{alarms.value.map((alarm) => alarm.summary).join(" · ")}</p>
          : <Proof />}
        <span class="spacer" />
        <Age />
      </footer>
    </div>
  );
}

function Big({ name, part, value, words, children }: { name: string; part: Part; value: string; words: string; children?: preact.ComponentChildren }) {
  const silent = silence(part);
  return (
    <section class={`panel big${silent ? " stale" : ""}`} data-tile={name}>
      <h2>{name}</h2>
      <p class="figure num" data-figure>{value}</p>
      {children}
      <p class="num muted">{silent ?? words}</p>
    </section>
  );
}
