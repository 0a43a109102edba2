// What is taken away from a sale: the report for the promoter, and tables.
import { vitals } from "../live";
import { may, whyNot } from "../problem";
import type { DrawerProps } from "./drawer";

export function Report({ eventId }: DrawerProps) {
  const report = `/console/api/events/${eventId}/report`;
  const tables: [string, string, string][] = [
    [`/admin/orders/export.csv?event_id=${eventId}`, "Orders", "with the buyers' names"],
    [`/admin/orders/events/${eventId}/tickets.csv`, "Tickets", "of every order"],
    [`/admin/inventory/events/${eventId}/sales.csv`, "Sales by section", ""],
    [`/admin/inventory/events/${eventId}/seats.csv`, "Seats", "free, held, sold"],
  ];
  return (
    <>
      {!!vitals.value?.without_reports.length && <p class="outcome warn">Reports are off: there is nothing at these addresses.</p>}
      <p>The report is one page without scripts, to read, to print and to send to the promoter: the funnel, waits, sales, payments, and every change with its reason. It names no fan.</p>
      <p class="muted">Reasons are in it as they were typed: read it before you send it.</p>
      <div class="buttons">
        <a class="button primary" href={`${report}?download=true`} download data-first>Save the report</a>
        <a class="button" href={report} target="_blank" rel="noopener">Read it</a>
      </div>
      <h3>Tables</h3>
      {may("operator") ? (
        <ul class="rows">{tables.map(([address, name, about]) => (
          <li key={name}><p><a href={address} download>{name}</a> <span class="muted">{about && `${about} · `}CSV</span></p></li>
        ))}</ul>
      ) : <p class="muted">{whyNot("operator")}</p>}
    </>
  );
}
