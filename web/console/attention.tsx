// What needs a person now, first what is urgent: lost connection, alarms with what to do, orders that wait for a decision.
import { openDrawer, type DrawerName } from "./drawers/drawer";
import { count, duration, plain } from "./format";
import { alarms, clockMs, connected, lastHeardMs, replayed, vitals } from "./live";
import { ApprovalNotice, shownApprovals } from "./second_person";
import type { ActiveAlarm } from "./documents";

const HELPS: Record<string, { words: string; drawer: DrawerName; args?: Record<string, string> }> = {
  QueueVeryLong: { words: "Rate…", drawer: "rate" },
  QueueLong: { words: "Rate…", drawer: "rate" },
  LineStandsStill: { words: "Rate…", drawer: "rate" },
  Oversold: { words: "Reconcile…", drawer: "reconcile" },
  OrdersWait: { words: "Rate…", drawer: "rate" },
  OrdersNeedAPerson: { words: "Review…", drawer: "orders", args: { filter: "review" } },
};

export function Attention() {
  if (replayed.value || !vitals.value) return null;
  const found = alarms.value;
  const reviews = found.some((alarm) => alarm.name === "OrdersNeedAPerson") ? 0 : vitals.value.orders.in_review ?? 0;
  const late = lost();
  const asked = shownApprovals();
  const uncounted = vitals.value.without_reports;
  return (
    <section class={`attention${found.length || reviews || late || asked.length || uncounted.length ? "" : " calm"}`} aria-label="What needs attention">
      <p class="visually-hidden" role="status">{found.length ? `${found.length} alarms: ${found.map((alarm) => alarm.name).join(", ")}` : "No alarm"}</p>
      {late && <div class="notice bad"><b>Connection lost</b><p>Figures from {late} ago. The page tries again every second.</p></div>}
      {uncounted.length > 0 && (
        <div class="notice info" data-without-reports>
          <b>Reports are off in {uncounted.join(", ")}</b>
          <p>Calls, waits, the funnel, orders and the forecast are not counted where they are off: a dash is no zero.</p>
        </div>
      )}
      <p class="visually-hidden" role="status">{asked.map((one) => `${one.requested_by} asks for a second person: ${one.reason}`).join(", ")}</p>
      {asked.map((one) => <ApprovalNotice key={one.id} one={one} />)}
      {found.map((alarm) => <Alarm key={alarm.name} alarm={alarm} />)}
      {reviews > 0 && (
        <div class="notice warn">
          <b>{count(reviews)} {reviews === 1 ? "order waits" : "orders wait"} for a decision</b>
          <p>Each says why it waits, and what you may decide.</p>
          <button type="button" class="button small" onClick={() => openDrawer("orders", { filter: "review" })}>Review…</button>
        </div>
      )}
      {!found.length && !reviews && !late && !asked.length && !uncounted.length && <p class="nothing"><i class="tick" aria-hidden="true" />Nothing needs you.</p>}
    </section>
  );
}

// How long nothing was heard, if too long.
export function lost(): string | null {
  const late = (clockMs.value - lastHeardMs.value) / 1000;
  return lastHeardMs.value && (late > 3 || (!connected.value && late > 1.5)) ? duration(Math.round(late)) : null;
}

function Words({ text }: { text: string }) {
  return <>{plain(text).map((part, index) => part.code ? <code key={index}>{part.text}</code> : part.text)}</>;
}

function Alarm({ alarm }: { alarm: ActiveAlarm }) {
  const help = HELPS[alarm.name];
  return (
    <div class={`notice ${{ critical: "bad", warning: "warn", info: "info" }[alarm.severity]}`} data-alarm={alarm.name}>
      <b>{alarm.summary} <span class="muted num">{alarm.name} · {duration(Math.max(0, Math.round((clockMs.value - alarm.since_ms) / 1000)))}</span></b>
      <p><Words text={alarm.do} /></p>
      <details>
        <summary>Runbook<span class="visually-hidden"> of {alarm.name}</span></summary>
        <p><Words text={alarm.meaning} /></p>
        <p><b>Look at</b> <Words text={alarm.check_first} /></p>
      </details>
      {help && <button type="button" class="button small" onClick={() => openDrawer(help.drawer, help.args)}>{help.words}</button>}
    </div>
  );
}
