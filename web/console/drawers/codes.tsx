// Access codes of the lanes. Only their hashes are stored: new codes are shown once.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import type { AccessCodeView, CreatedAccessCodes, RevokedAccessCodes } from "../documents";
import { count } from "../format";
import { ProblemText } from "../problem";
import { Action } from "../write";
import { at, Choice, Figure, Listed, numberOf, Once, Text, usePages, wordsOf } from "./fields";
import type { DrawerProps } from "./drawer";
import { useRoom } from "./room_view";

export function AccessCodes({ eventId }: DrawerProps) {
  const path = `/admin/queue/events/${eventId}/codes`;
  const room = useRoom(eventId);
  const codes = usePages<AccessCodeView>(path, "codes");
  const fresh = useSignal<string[]>([]);
  const [lane, number, uses, revoked] = [useSignal<string | null>(null), useSignal("10"), useSignal("1"), useSignal("")];
  if (!room.data.value) return <ProblemText problem={room.problem.value} />;
  const lanes = Object.values(room.data.value.lanes).filter((one) => one.code_required);
  const chosen = lane.value ?? String(lanes[0]?.lane ?? 1);
  const name = (of: number) => room.data.value?.lanes[of]?.name ?? `Lane ${of}`;
  const revoke = async (body: object, key: string, reason: string | null) => {
    const { data } = await call<RevokedAccessCodes>("POST", `${path}/revoke`, { body: { ...body, reason }, key });
    await codes.read();
    return `${count(data.revoked)} ${data.revoked === 1 ? "code is" : "codes are"} revoked.`;
  };
  const wanted = { lane: Number(chosen), count: numberOf(number.value), uses: numberOf(uses.value) };
  return (
    <>
      {lanes.length === 0 && <p class="muted">This event has no lane that asks for a code: the event file names the lanes.</p>}
      {lanes.length > 0 && (
        <Action asks label="New access codes" name="new-codes" sends={wanted} wrong={wanted.count && wanted.uses ? null : "Give both numbers."}
          send={async ({ key, reason }) => {
            const { data } = await call<CreatedAccessCodes>("POST", path, { body: { ...wanted, reason }, key });
            fresh.value = data.codes;
            await codes.read();
            return `${count(data.codes.length)} made.`;
          }}>
          <Choice label="Lane" value={{ get value() { return chosen; }, set value(one) { lane.value = one; } }}
            options={lanes.map((one) => [String(one.lane), one.name])} />
          <div class="two"><Figure label="How many" name="count" value={number} min={1} max={10_000} /><Figure label="Places each" name="uses" value={uses} min={1} /></div>
        </Action>
      )}
      {fresh.value.length > 0 && <Once label="The new codes." text={fresh.value.join("\n")} />}
      <Action asks label="Revoke codes" name="revoke" tone="danger" reason="required" sends={revoked.value} wrong={wordsOf(revoked.value).length ? null : "Paste the codes."}
        about="Fans who joined with them keep their places."
        send={async ({ key, reason }) => {
          const words = await revoke({ codes: wordsOf(revoked.value) }, key, reason);
          revoked.value = "";
          return words;
        }}>
        <Text label="Codes" value={revoked} lines={3} max={60_000} />
      </Action>
      <Listed pages={codes} none="No access code yet." row={(one) => (
        <li key={one.code_id} data-code={one.code_id}>
          <p><b>{name(one.lane)}</b> <span class="mono muted">{one.code_id.slice(0, 8)}</span>
            <span class="muted"> · used {count(one.uses)} of {count(one.uses_max)} · made {at(one.created_at)}{one.revoked_at && ` · revoked ${at(one.revoked_at)}`}</span></p>
          <Action asks idle={!!one.revoked_at} label="Revoke" name={`revoke-${one.code_id}`} tone="danger" reason="required" send={({ key, reason }) => revoke({ code_ids: [one.code_id] }, key, reason)} />
        </li>
      )} />
    </>
  );
}
