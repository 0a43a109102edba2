"""A payment provider for rehearsals: a separate HTTP server that takes charges and misbehaves on request.

It knows nothing of the suite and shares no code with it, as any other provider. JSON in and out; money in
integer minor units; times RFC 3339 UTC. Bodies end at 64 KiB, unknown fields are refused.

**Calls**

`POST /charges`, header `Idempotency-Key` (1 to 255 visible ASCII characters, required), body
`{reference, amount_minor, currency, method, token?, return_url?, capture?: true, event_id?, description?, statement?,
metadata?: {}}`; `statement` is what a card statement shows: 22 characters of Latin script.
    → `201` and the charge: `{id, reference, idempotency_key, status, amount_minor, currency, captured_minor,
    refunded_minor, dispute, method, created_at, occurred_at, failure_reason, checkout_url, event_id, description,
    statement}`.
    The same key and body again → `200`, the first answer unchanged (read the charge to learn its present status),
    header `Idempotency-Replayed: true`. The same key and another body → 409 `idempotency_key_reused`.
    `method: redirect`, or any method with a `return_url` → `requires_action` with a `checkout_url`, a page with
    Pay, Decline and Cancel that sends the browser on to `return_url`; Pay then does what the method does.
    `capture: false` only authorises: `succeeded` with `captured_minor` 0. A card number as token → 422 `card_number`.
`GET /charges/{id}` → the charge.
`GET /charges?reference=&since=&limit=` → `{charges: [...], has_more}`, newest last. `limit` is 100 unless given, and
    never more than 1,000. `since` is a time (created then or later) or a charge id (created after it): with it come the
    oldest of those, so that the last id leads to the next page; without it the newest.
`POST /charges/{id}/cancel` → the charge; 409 `already_succeeded` (an authorisation is voided), 409 `already_failed`.
    Cancelling a cancelled charge answers it again.
`POST /charges/{id}/capture` → the charge, captured in full; repeating it is harmless; else 409 `not_succeeded`.
`POST /charges/{id}/refunds`, header `Idempotency-Key`, body `{amount_minor}` → `201 {id, charge_id, idempotency_key,
    amount_minor, currency, status: "succeeded", created_at}`; replayed like a charge. 409 `refund_exceeds_charge`,
    `not_succeeded`.
    A refund under a key that the suite never used is one made in the provider's own dashboard.
`GET /charges/{id}/refunds` → `{refunds: [...]}`.
`POST /charges/{id}/dispute` `{status: "open", amount_minor?, inquiry?: false}` → the charge, with `dispute: {id,
    status, amount_minor, withdrawn_minor}`: the bank takes the money back, all that was captured unless an amount is
    given, or only asks (`inquiry`). `{status: "won"}` and `{status: "lost"}` end it; won gives the money back. 409
    `already_disputed`, `no_open_dispute`, `dispute_exceeds_charge`.
`GET /healthz` → `{status: "ok", charges, webhooks_waiting, webhooks_lost}`, also during a simulated outage.
`POST /control` `{down_for_s?, rate_limit_per_s?, deliver_late_s?, latency_s?, forge_webhook?, reset?}` → the faults
    in force. An outage answers 503 to everything else, a rate limit 429, both with `Retry-After`; 0 ends either.
    `forge_webhook: {…}` sends that event with a wrong signature. `reset: true` deletes all charges first.
Errors are `{error: {code, message}}`.

`status`: `requires_action`, `processing`, `succeeded`, `failed`, `cancelled`. `occurred_at` is when the charge reached
the status it has; a refund leaves both as they are and raises `refunded_minor`.

**Methods** (`method` of the charge; most delays are settings)

`ok` succeeds. `decline` fails with `card_declined`. `slow` is charged at once and answered after `slow_s` (2).
`timeout_after_success` is charged at once, the answer hangs for `hang_s` (60) or until the client leaves; a repeat
answers at once. `error_then_ok` answers 503 twice per key, charges nothing, then succeeds. `duplicate_webhooks` sends
each event three times. `reordered_webhooks` sends the success first and `reorder_gap_s` (0.5) later the
processing. `late_success` answers `processing` and succeeds after `metadata.late_after_s` (3) unless cancelled.
`success_after_cancel` answers `processing` and stays so; a cancel is answered `cancelled`, and as much later it
succeeds nevertheless. `double_success` makes a second charge of the same reference under its own id and the key
`{key}#double`. `refund_fails_once` answers the first refund of the charge with 502, `capture_fails_once` its first
capture, `capture_fails` every one. `redirect` is the hosted page.

**Webhooks**: `POST` to the configured address, `{id: "evt_…", type, created_at, data: {charge: {…}}}`, the charge as it
was then; `type` is `charge.` and `processing`, `succeeded`, `failed`, `cancelled`, `refunded`, `disputed` or
`dispute_closed`. Header `Sandbox-Signature: t=<unix>,v1=<hex>`, HMAC-SHA256 of `t.body`, signed anew for each try.
Anything but 2xx is tried again, eight times in all. Order is not promised. Webhooks that wait when the process dies are
lost, charges are not: they are written to the file before anything is answered.
"""
