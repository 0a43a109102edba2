// The operator's screen of one event.
import { useEffect } from "preact/hooks";
import { go } from "./address";
import { Attention } from "./attention";
import { Bar } from "./bar";
import { Charts } from "./charts";
import { Drawer } from "./drawers";
import { Funnel } from "./funnel";
import { Help } from "./help";
import { listen } from "./keys";
import { replayed, snapshot, stop, unknownEvent, vitals, watch } from "./live";
import { Processes } from "./processes";
import { ReplayBar } from "./replay";
import { Sections } from "./sections";
import { Tiles } from "./tiles";
import { Timeline } from "./timeline";

export function Screen({ eventId }: { eventId: string }) {
  useEffect(() => {
    watch(eventId);
    const deafen = listen();
    return () => { deafen(); stop(); };
  }, [eventId]);
  useEffect(() => { document.title = `${snapshot.value?.name ?? eventId} · Onsale console`; }, [eventId, snapshot.value?.name]);
  if (unknownEvent.value) return <NoEvent eventId={eventId} />;
  return (
    <div class={`screen${replayed.value ? " replaying" : ""}`}>
      <Bar eventId={eventId} />
      <main>
        <ReplayBar />
        <Attention />
        {vitals.value ? (
          <>
            <Tiles />
            <Charts />
            <div class="details"><Funnel />{!replayed.value && <><Sections /><Processes /></>}<Timeline /></div>
          </>
        ) : <p class="muted waiting" role="status">Waiting for the first figures…</p>}
      </main>
      <Drawer eventId={eventId} />
      <Help />
    </div>
  );
}

export function NoEvent({ eventId }: { eventId: string }) {
  return (
    <main class="card panel">
      <h1>No event {eventId}</h1>
      <p>There is no such event, or it was deleted. <a href="/console/" onClick={go}>All events</a></p>
    </main>
  );
}
