// How orders are processed: the share that is done in the background, and the commands that failed.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import type { BackgroundShareAnswer, BackgroundShareChanged, Command } from "../documents";
import { rate, sentence } from "../format";
import { ProblemText } from "../problem";
import { Action, useResource, type Intent } from "../write";
import { at, Choice, Figure, Listed, numberOf, usePages } from "./fields";
import type { DrawerProps } from "./drawer";

const STATUSES: [string, string][] = [["failed", "Failed"], ["pending", "Pending"], ["processing", "In work"], ["completed", "Done"], ["", "All"]];

export function Jobs({ eventId }: DrawerProps) {
  return <><Background eventId={eventId} /><h3>Steps of orders</h3><Commands eventId={eventId} /></>;
}

function Background({ eventId }: { eventId: string }) {
  const path = `/admin/orders/events/${eventId}/background-share`;
  const share = useResource<BackgroundShareAnswer>(path);
  const typed = useSignal<string | null>(null);
  const now = share.data.value?.background_percent;
  if (now === undefined) return <ProblemText problem={share.problem.value} />;
  const wanted = numberOf(typed.value ?? String(now));
  const set = async (percent: number, { key, reason }: Intent) => {
    share.take(await call<BackgroundShareChanged>("PATCH", path, { body: { background_percent: percent, reason }, key }));
    typed.value = null;
  };
  return (
    <Action label="Set the share" name="background-share" of={share} sends={wanted}
      wrong={wanted === null || wanted < 0 || wanted > 100 ? "A number from 0 to 100." : wanted === now ? `In force: ${rate(now)} %.` : null}
      about="Checkouts done in the background survive a slow payment provider better; the others are answered faster."
      send={async (intent) => {
        await set(wanted!, intent);
        return { words: `${rate(wanted)} % of the checkouts are done in the background.`, undo: { label: `Back to ${rate(now)} %`, run: (undo) => set(now, { ...undo, reason: "Taken back in the console" }) } };
      }}>
      <Figure label="Per cent of checkouts in the background" name="background_percent" max={100} step="any"
        value={{ get value() { return typed.value ?? String(now); }, set value(text) { typed.value = text; } }} />
    </Action>
  );
}

function Commands({ eventId }: { eventId: string }) {
  const status = useSignal("failed");
  const commands = usePages<Command>(`/admin/orders/commands?${new URLSearchParams({ event_id: eventId, page_size: "20", ...(status.value && { status: status.value }) })}`, "commands");
  return (
    <>
      <Choice label="Show" name="status" value={status} options={STATUSES} />
      <Listed pages={commands} none={status.value === "failed" ? "No step failed." : "No such step."} row={(one) => (
        <li key={one.command_id} data-command={one.command_id}>
          <p><b>{sentence(one.command_type)}</b> <span class="mono">{one.reference}</span> <span class={`pill ${one.status === "failed" ? "bad" : ""}`}>{one.status}</span></p>
          <p class="muted">{one.attempts} {one.attempts === 1 ? "attempt" : "attempts"} · {at(one.created_at)}{one.error_message && ` · ${one.error_message}`}</p>
          <Action asks idle={one.status !== "failed"} label="Run again" name={`rerun-${one.command_id}`} reason="required" sends={one.command_id} about="Does the same once more."
            send={async ({ key, reason }) => {
              await call("POST", `/admin/orders/commands/${one.command_id}/rerun`, { body: { reason }, key });
              await commands.read();
              return "It runs again.";
            }} />
        </li>
      )} />
    </>
  );
}
