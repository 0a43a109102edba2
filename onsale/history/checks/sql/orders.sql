-- These orders, with the refunds that people requested (also at the provider itself), whether their payment was disputed and
-- whether they were charged in time, and their tickets.
-- $1 references
SELECT o.reference, o.event_id, o.status, o.reservation_id, o.owner_id, o.total_minor, o.currency, o.review_decision,
    (SELECT count(*) FROM orders.refund r WHERE r.reference = o.reference) AS refunds,
    EXISTS (SELECT FROM orders.refund r WHERE r.reference = o.reference AND r.requested_by <> 'system')
        AS refunded_by_people,
    o.dispute IS NOT NULL AS disputed,
    EXISTS (SELECT FROM orders.money_entry m WHERE m.reference = o.reference AND m.kind = 'charge'
            AND m.occurred_at <= o.expires_at + make_interval(secs => o.grace_s)) AS paid_in_time,
    EXISTS (SELECT FROM orders.payment_attempt a WHERE a.reference = o.reference AND NOT a.capture) AS authorised_only,
    array(SELECT t.ticket_id FROM orders.ticket t WHERE t.reference = o.reference) AS tickets
FROM orders."order" o WHERE o.reference = ANY($1::text[])
