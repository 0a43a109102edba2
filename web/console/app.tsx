// Which screen is shown: by the address and by who is signed in.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { path } from "./address";
import { EventList } from "./event_list";
import { session } from "./live";
import { Screen } from "./screen";
import { SignIn, signInByLink } from "./sign_in";
import type { Session } from "./documents";
import { Wall } from "./wall";

const known = signal(false);
const away = signal(false);

addEventListener("hashchange", () => void signInByLink());

async function learnWho(): Promise<void> {
  try {
    await signInByLink();
    if (!session.value) {
      const answer = await fetch("/console/session");
      if (answer.ok) session.value = await answer.json() as Session;
      else if (answer.status !== 401) throw new Error(String(answer.status));
    }
    known.value = true;
    away.value = false;
  } catch {
    away.value = true;
    setTimeout(() => void learnWho(), 1000);
  }
}

export function App() {
  useEffect(() => void learnWho(), []);
  if (!known.value) return away.value ? <main class="card panel"><h1>The console does not answer</h1><p role="status">The page tries again every second.</p></main> : null;
  if (!session.value) return <SignIn />;
  const [, kind, eventId] = path.value.match(/^\/console\/(events|wall)\/([^/]+)$/) ?? [];
  if (!eventId) return <EventList />;
  return kind === "wall" ? <Wall key={eventId} eventId={eventId} /> : <Screen key={eventId} eventId={eventId} />;
}
