-- Writes payment steps that were decided under the lock; of a hold that is `unbegun` no payment has ever begun. All arrays are
-- text, because for other types the driver queries the system catalogue first.
UPDATE inventory.reservation r
SET status = step.status, order_reference = step.order_reference, reserved_until_ms = CAST(step.until_ms AS bigint),
    customer_key = CASE WHEN step.unbegun = '' THEN r.customer_key END,
    payment_begun_at = CASE WHEN step.unbegun = '' THEN r.payment_begun_at END,
    payment_extended = r.payment_extended AND step.unbegun = '',
    ended_at = CASE WHEN step.status IN ('expired', 'cancelled') THEN clock_timestamp() ELSE r.ended_at END,
    confirmed_at = CASE WHEN step.status = 'confirmed' THEN clock_timestamp() ELSE r.confirmed_at END,
    version = r.version + 1
FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]), CAST(:statuses AS text[]), CAST(:references AS text[]),
            CAST(:untils AS text[]), CAST(:unbegun AS text[]))
     AS step (event_id, reservation_id, status, order_reference, until_ms, unbegun)
WHERE r.event_id = step.event_id AND r.reservation_id = step.reservation_id
