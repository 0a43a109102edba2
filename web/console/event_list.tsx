// All events: which runs, how many wait, how much is sold, and where alarms fire.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { call } from "./api";
import { go, signOut } from "./address";
import { StatePill } from "./bar";
import { count, percent } from "./format";
import { session } from "./live";
import { StockBar } from "./tiles";
import type { EventList as Events } from "./documents";

const EVERY_MS = 3000;
const events = signal<Events["events"] | null>(null);
const failed = signal(false);

async function read(): Promise<void> {
  try {
    events.value = (await call<Events>("GET", "/console/api/events")).data.events;
    failed.value = false;
  } catch {
    failed.value = true;
  }
}

export function EventList() {
  useEffect(() => {
    document.title = "Events · Onsale console";
    void read();
    const timer = setInterval(() => { if (!document.hidden) void read(); }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  const found = events.value;
  return (
    <div class="list">
      <header class="bar"><div class="row">
        <h1><i class="mark" aria-hidden="true" />Events</h1>
        <span class="spacer" />
        <span class="muted">{session.value?.name} · {session.value?.role}</span>
        <button type="button" class="button small" onClick={() => void signOut()}>Sign out</button>
      </div></header>
      <main>
        {failed.value && <p class="notice bad" role="alert">The list could not be read; the page tries again.</p>}
        {found?.length === 0 && <p class="panel muted">No event yet. <code>onsale events apply FILE</code> makes one.</p>}
        <ul class="events">
          {found?.map((event) => (
            <li key={event.event_id} class="panel event" data-event={event.event_id}>
              <h2><a href={`/console/events/${event.event_id}`} onClick={go}>{event.name}</a> <span class="muted">{event.event_id}</span></h2>
              <StatePill state={event.state} />
              {event.alarms > 0 && <span class="pill bad">{event.alarms} {event.alarms === 1 ? "alarm" : "alarms"}</span>}
              <dl class="num">
                <div><dt>Waiting</dt><dd>{count(event.waiting)}</dd></div>
                <div><dt>Sold</dt><dd>{percent(event.sold, event.total)}</dd></div>
                <div><dt>Tickets</dt><dd>{count(event.sold)} <span class="muted">of {count(event.total)}</span></dd></div>
              </dl>
              <StockBar sold={event.sold} held={0} total={event.total} />
            </li>
          ))}
        </ul>
      </main>
    </div>
  );
}
