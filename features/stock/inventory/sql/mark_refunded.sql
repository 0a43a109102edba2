-- Records the answers of orders to refund requests.
UPDATE inventory.oversell_return r SET refund = answer.refund, refunded_at = clock_timestamp()
FROM unnest(CAST(:event_ids AS text[]), CAST(:ids AS text[]), CAST(:refunds AS text[]))
AS answer (event_id, reservation_id, refund)
WHERE r.event_id = answer.event_id AND r.reservation_id = answer.reservation_id AND r.refunded_at IS NULL
