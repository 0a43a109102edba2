// Differences between the fast store and the database, and sections sold too often.
import { call } from "../api";
import type { OversellApproved, ReconcilePass, ReconcileReport, RecordedDrift, UnconfirmedDrift } from "../documents";
import { count, percent, sentence } from "../format";
import { ProblemText } from "../problem";
import { Action, useResource } from "../write";
import { at } from "./fields";
import type { DrawerProps } from "./drawer";

export function Reconcile({ eventId }: DrawerProps) {
  const path = `/admin/inventory/events/${eventId}`;
  const report = useResource<ReconcileReport>(`${path}/reconcile`);
  const found = report.data.value;
  if (!found) return <ProblemText problem={report.problem.value} />;
  const drifts: (UnconfirmedDrift & Partial<RecordedDrift>)[] = [...found.watched, ...found.found];
  const waiting = found.oversell.filter((one) => one.status === "waiting");
  return (
    <>
      <Action label="Reconcile now" name="reconcile"
        about="Compares the fast store with the database. It corrects what an earlier comparison, at least five seconds ago, saw the same."
        send={async ({ key, reason }) => {
          const { data } = await call<ReconcilePass>("POST", `${path}/reconcile`, { body: { reason }, key });
          await report.read();
          return `${count(data.differences)} differences seen, ${count(data.corrected)} corrected.`;
        }} />
      <h3>Differences</h3>
      {found.watched.length + found.found.length === 0 && <p class="muted">None: the fast store and the database agree.</p>}
      <ul class="rows">{drifts.map((one, index) => (
        <li key={index}><p><b>{one.what}</b>: seen {one.seen}, should be {one.should_be}</p>
          <p class="muted">since {at(one.since)}{one.done && ` · ${one.done} ${at(one.done_at)}`}</p></li>
      ))}</ul>
      <h3>Sold too often</h3>
      {found.oversell.length === 0 && <p class="muted">Nothing: no section has more buyers than places.</p>}
      <ul class="rows">{found.oversell.map((one) => (
        <li key={one.id}>
          <p><b>{one.section_id}{one.position >= 0 && `, seat ${one.position + 1}`}</b>: {count(one.excess)} too many <span class="muted">· {sentence(one.status)} · found {at(one.found_at)}</span></p>
          {one.decided_by && <p class="muted">Decided by {one.decided_by}{one.reason && `: ${one.reason}`}</p>}
          {one.returns.length > 0 && <p class="muted">{percent(one.returns.filter((each) => each.refunded_at).length, one.returns.length)} of {count(one.returns.length)} buyers refunded</p>}
        </li>
      ))}</ul>
      <Action asks idle={waiting.length === 0} label="Approve all that wait" name="approve" tone="danger" needs="admin" reason="required" typed={eventId} sends={waiting.map((one) => one.id)}
          about="Those who bought last lose their tickets and get all their money back."
          send={async ({ key, reason }) => {
            const { data } = await call<OversellApproved>("POST", `${path}/oversell/approve`, { body: { reason }, key });
            await report.read();
            return data.cancelled.length === 1 ? "1 reservation loses its tickets and is refunded."
              : `${count(data.cancelled.length)} reservations lose their tickets and are refunded.`;
          }} />
    </>
  );
}
