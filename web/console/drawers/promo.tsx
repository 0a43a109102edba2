// Promo codes of the event: which there are, how often they were used, a new one, an end.
import { useSignal } from "@preact/signals";
import { minorOf } from "../../money";
import { call } from "../api";
import type { PromoCodeAnswer } from "../documents";
import { count } from "../format";
import { snapshot } from "../live";
import { Action } from "../write";
import { at, Choice, Figure, Listed, Moment, money, numberOf, Text, timeOf, usePages } from "./fields";
import type { DrawerProps } from "./drawer";

export function Promo({ eventId }: DrawerProps) {
  const path = `/admin/orders/events/${eventId}/promo-codes`;
  const promos = usePages<PromoCodeAnswer>(path, "promo_codes");
  const currency = snapshot.value?.currency ?? "EUR";
  const [code, kind, value, uses, each, until] = [useSignal(""), useSignal("percent"), useSignal("10"), useSignal(""), useSignal(""), useSignal("")];
  const off = kind.value === "percent" ? numberOf(value.value) : minorOf(value.value, currency);
  const body = {
    ...(kind.value === "percent" ? { percent: String(off) } : { amount_minor: off }),
    uses_max: numberOf(uses.value), customer_uses_max: numberOf(each.value), valid_until: timeOf(until.value),
  };
  const address = `${path}/${encodeURIComponent(code.value.trim())}`;
  const stop = async (one: string, reason: string | null, key: string) => {
    const query = reason ? `?${new URLSearchParams({ reason })}` : "";
    await call("DELETE", `${path}/${encodeURIComponent(one)}${query}`, { key });
    await promos.read();
  };
  return (
    <>
      <Action asks label="New promo code" name="new-promo" sends={[address, body]}
        wrong={!code.value.trim() ? "Give the code." : !off || off <= 0 ? "Give what it takes off." : null}
        send={async ({ key, reason }) => {
          await call("PUT", address, { body: { ...body, reason }, key });
          await promos.read();
          const made = code.value.trim();
          code.value = "";
          return { words: `${made} is valid.`, undo: { label: "Stop it", run: (undo) => stop(made, "Taken back in the console", undo.key) } };
        }}>
        <Text label="Code" value={code} max={64} />
        <div class="two">
          <Choice label="Takes off" name="kind" value={kind} options={[["percent", "Per cent"], ["amount", currency]]} />
          <Figure label="How much" name="off" value={value} step="any" />
        </div>
        <div class="two">
          <Figure label="Uses at most" name="uses_max" value={uses} min={1} optional hint="(empty: no limit)" />
          <Figure label="By one customer" name="customer_uses_max" value={each} min={1} optional hint="(empty: no limit)" />
        </div>
        <Moment label="Valid until" name="until" value={until} hint="(empty: no end)" />
      </Action>
      <Listed pages={promos} none="No promo code yet." row={(one) => (
        <li key={one.code} data-promo={one.code}>
          <p><b class="mono">{one.code}</b> {one.percent ? `${Number(one.percent)} %` : money(one.amount_minor ?? 0, currency)} off
            <span class="muted"> · used {count(one.uses)}{one.uses_max && ` of ${count(one.uses_max)}`}{one.valid_until && ` · until ${at(one.valid_until)}`}{one.stopped_at && ` · stopped ${at(one.stopped_at)}`}</span></p>
          <Action asks idle={!!one.stopped_at} label="Stop" name={`stop-${one.code}`} tone="danger" about="Orders that used it keep it."
            send={async ({ key, reason }) => { await stop(one.code, reason, key); return "Stopped."; }} />
        </li>
      )} />
    </>
  );
}
