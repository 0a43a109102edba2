// What happened, newest first: operators' changes with who and why, and alarms.
import { signal } from "@preact/signals";
import { clockTime, dayTime, differences, duration, sentence } from "./format";
import { alarmLog, changes, clockMs, replayed, shown } from "./live";
import type { Change, PastAlarm } from "./documents";

type Entry = { at: number } & ({ change: Change } | { alarm: PastAlarm });
const SHOWN_FIRST = 40;
const all = signal(false);

export function Timeline() {
  const until = replayed.value ? shown.value!.at_ms : Infinity;
  const entries: Entry[] = [
    ...changes.value.map((change) => ({ at: change.at_ms, change })),
    ...alarmLog.value.map((alarm) => ({ at: alarm.since_ms, alarm })),
  ].filter((entry) => entry.at <= until).sort((one, other) => other.at - one.at);
  const listed = all.value ? entries : entries.slice(0, SHOWN_FIRST);
  return (
    <section class="panel timeline" aria-labelledby="timeline">
      <h2 id="timeline">Timeline <span class="muted">changes and alarms</span></h2>
      <div class="scroll" tabindex={0} role="region" aria-label="Changes and alarms, newest first">
        <ol>
          {listed.map((entry) => "change" in entry
            ? <ChangeItem key={`${entry.change.service} ${entry.change.id}`} change={entry.change} />
            : <AlarmItem key={`${entry.alarm.name} ${entry.alarm.since_ms}`} alarm={entry.alarm} />)}
        </ol>
        {entries.length > listed.length && <button type="button" class="button small" onClick={() => { all.value = true; }}>All {entries.length}</button>}
        {entries.length === 0 && <p class="muted">Nothing was changed yet.</p>}
      </div>
    </section>
  );
}

const SHOWN_DIFFERENCES = 3;
function ChangeItem({ change }: { change: Change }) {
  const changed = differences(change.before, change.after);
  return (
    <li class="change" data-change={change.action}>
      <time class="num muted" dateTime={new Date(change.at_ms).toISOString()}>{dayTime(change.at_ms, clockMs.value)}</time>
      <div>
        <p><b>{sentence(change.action.replaceAll("-", " "))}</b> <span class="muted">by {change.actor}{subject(change)}</span></p>
        {changed.slice(0, SHOWN_DIFFERENCES).map(({ name, before, after }) => (
          <p class="num difference" key={name}>{name} <s>{before}</s> → <b>{after}</b></p>
        ))}
        {changed.length > SHOWN_DIFFERENCES && <p class="muted">and {changed.length - SHOWN_DIFFERENCES} more</p>}
        {change.reason && <p class="reason">“{change.reason}”</p>}
      </div>
    </li>
  );
}

const subject = ({ subject: of, service }: Change) => /^(event|prices):/.test(of) ? ` · ${service}` : ` · ${service} ${of.replace(":", " ")}`;

function AlarmItem({ alarm }: { alarm: PastAlarm }) {
  return (
    <li class={`alarm ${alarm.severity}`}>
      <time class="num muted" dateTime={new Date(alarm.since_ms).toISOString()}>{clockTime(alarm.since_ms)}</time>
      <div>
        <p><b>{alarm.name}</b> <span class="muted">{alarm.ended_ms === null ? "fires now" : `ended after ${duration((alarm.ended_ms - alarm.since_ms) / 1000)}`}</span></p>
        <p>{alarm.summary}</p>
      </div>
    </li>
  );
}
