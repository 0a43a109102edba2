// Where messages about orders are sent, and whether they arrive.
import { useSignal } from "@preact/signals";
import { call } from "../api";
import type { CreatedWebhookEndpoint, WebhookDelivery, WebhookEndpoints } from "../documents";
import { ProblemText } from "../problem";
import { Action, useResource } from "../write";
import { at, Check, Choice, Listed, Once, Text, usePages } from "./fields";
import type { DrawerProps } from "./drawer";

const KINDS = ["order.created", "order.confirmed", "order.cancelled", "order.expired", "order.refunded", "order.renamed"];
const PATH = "/admin/orders/webhooks";

export function Webhooks({ eventId }: DrawerProps) {
  const hooks = useResource<WebhookEndpoints>(PATH);
  const secret = useSignal("");
  const [shown, deleted] = [useSignal<string | null>(null), useSignal<string | null>(null)];
  const [url, about, here] = [useSignal(""), useSignal(""), useSignal(true)];
  const kinds = useSignal(KINDS);
  const found = hooks.data.value;
  if (!found) return <ProblemText problem={hooks.problem.value} />;
  const body = { url: url.value.trim(), kinds: kinds.value, event_id: here.value ? eventId : null, description: about.value.trim() || null };
  return (
    <>
      <Action asks label="New webhook" name="new-webhook" needs="admin" reason="required" sends={body}
        wrong={!body.url ? "Give the address." : kinds.value.length ? null : "Choose at least one kind of message."}
        send={async ({ key, reason }) => {
          const { data } = await call<CreatedWebhookEndpoint>("POST", PATH, { body: { ...body, reason }, key });
          secret.value = data.secret;
          url.value = about.value = "";
          await hooks.read();
          return "Made. Messages are signed with the secret below.";
        }}>
        <Text label="Address" name="url" value={url} max={1000} placeholder="https://" />
        <Text label="Description" value={about} hint="(optional)" />
        <fieldset class="group"><legend>Messages</legend>
          {KINDS.map((kind) => (
            <label class="check" key={kind}><input type="checkbox" checked={kinds.value.includes(kind)} onChange={(event) => {
              kinds.value = KINDS.filter((one) => one === kind ? event.currentTarget.checked : kinds.value.includes(one));
            }} /><span>{kind}</span></label>
          ))}
        </fieldset>
        <Check label="Only about this event" value={here} />
      </Action>
      {secret.value && <Once label="The signing secret." text={secret.value} />}
      <div role="status">{deleted.value && <p class="outcome good" data-deleted>Deleted: {deleted.value} gets no more messages.</p>}</div>
      {found.endpoints.length === 0 && <p class="muted">No webhook yet.</p>}
      <ul class="rows">{found.endpoints.map((one) => (
        <li key={one.endpoint_id} data-webhook={one.endpoint_id}>
          <p><b class="break">{one.url}</b></p>
          <p class="muted">{one.description && `${one.description} · `}{one.event_id ?? "all events"} · {one.kinds.length === KINDS.length ? "all messages" : one.kinds.join(", ")}</p>
          {one.failing_since && <p class="warn">Nothing arrived since {at(one.failing_since)}.</p>}
          {one.disabled_at && <p class="bad">Off since {at(one.disabled_at)}: {one.disabled_reason}</p>}
          <div class="buttons">
            <button type="button" class="button" aria-expanded={shown.value === one.endpoint_id} onClick={() => { shown.value = shown.value === one.endpoint_id ? null : one.endpoint_id; }}>Deliveries</button>
          </div>
          <Action asks idle={!one.disabled_at} label="Enable" name={`enable-${one.endpoint_id}`} needs="admin" reason="required" send={async ({ key, reason }) => {
            await call("POST", `${PATH}/${one.endpoint_id}/enable`, { body: { reason }, key });
            await hooks.read();
            return "Messages are sent again.";
          }} />
          <Action asks label="Delete" name={`delete-${one.endpoint_id}`} tone="danger" needs="admin" reason="required" about="Messages that were not delivered are lost to it."
            send={async ({ key, reason }) => {
              await call("DELETE", `${PATH}/${one.endpoint_id}?${new URLSearchParams({ reason: reason ?? "" })}`, { key });
              deleted.value = one.url;
              await hooks.read();
              return "Deleted.";
            }} />
          {shown.value === one.endpoint_id && <Deliveries endpoint={one.endpoint_id} />}
        </li>
      ))}</ul>
    </>
  );
}

function Deliveries({ endpoint }: { endpoint: string }) {
  const status = useSignal("");
  const deliveries = usePages<WebhookDelivery>(`${PATH}/${endpoint}/deliveries${status.value && `?status=${status.value}`}`, "deliveries");
  return (
    <section aria-label="Deliveries">
      <Choice label="Show" name="status" value={status} options={[["", "All"], ["failed", "Failed"], ["pending", "Pending"], ["delivered", "Delivered"]]} />
      <Listed pages={deliveries} none="No delivery." row={(one) => (
        <li key={one.id}>
          <p><b>{one.kind}</b> <span class="mono">{one.reference}</span></p>
          <p class="muted">{one.status}, {one.attempts} {one.attempts === 1 ? "attempt" : "attempts"} · {at(one.created_at)}{one.answer_status && ` · answered ${one.answer_status}`}{one.error && ` · ${one.error}`}</p>
          <Action asks label="Send again" name={`resend-${one.id}`} reason="required" send={async ({ key, reason }) => {
            await call("POST", `${PATH}/deliveries/${one.id}/resend`, { body: { reason }, key });
            await deliveries.read();
            return "It is sent again.";
          }} />
        </li>
      )} />
    </section>
  );
}
