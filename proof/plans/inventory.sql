-- One event. Of its reservations a fifth is held, a fifth is being paid, two fifths are sold and a fifth is expired. Each
-- has a seat, and every fourth also a ticket of general admission; every third is of a price type with a number in all. A section has a thousand seats.
INSERT INTO inventory.event (event_id, name, venue, currency, starts_at, hold_ttl_s, pay_ttl_s, grace_s,
    tickets_per_order, tickets_per_customer, active_reservations_per_customer, open_orders_per_customer)
VALUES ('e', 'n', 'v', 'EUR', now(), 600, 600, 5, 8, 8, 3, 3);
CREATE TEMP TABLE sample AS
SELECT i, md5(CAST(i AS text)) AS reservation_id, md5(CAST(i AS text)) AS holder, 'S' || (i - 1) / 1000 + 1 AS section_id,
       (i - 1) % 1000 / 50 + 1 AS r, (i - 1) % 50 + 1 AS s,
       (ARRAY['pending_payment', 'paying', 'confirmed', 'confirmed', 'expired'])[i % 5 + 1] AS status
FROM generate_series(1, {size}) AS i;
INSERT INTO inventory.seat (event_id, section_id, position, row, number, status, reservation_id)
SELECT 'e', section_id, (r - 1) * 51 + s - 1, CAST(r AS text), s,
       CASE status WHEN 'expired' THEN 'available' WHEN 'confirmed' THEN 'sold' ELSE 'held' END,
       CASE WHEN status <> 'expired' THEN reservation_id END
FROM sample;
INSERT INTO inventory.reservation (event_id, reservation_id, holder, email, total_minor, currency, status,
    order_reference, customer_key, reserved_until_ms, fingerprint, hold_ttl_s, variant, created_at, payment_begun_at,
    confirmed_at, ended_at, reminders_requested)
SELECT 'e', reservation_id, holder, holder || '@x', 5000, 'EUR', status,
       CASE WHEN status IN ('paying', 'confirmed') THEN 'o' || i END,
       CASE WHEN status IN ('paying', 'confirmed') THEN md5(CAST(i AS text)) END, 1000000 + i, 'a..b', 600,
       CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END, now() - interval '1 hour', now(),
       CASE WHEN status = 'confirmed' THEN now() END, CASE WHEN status = 'expired' THEN now() END, i <= 50
FROM sample;
INSERT INTO inventory.reservation_seat
SELECT 'e', reservation_id, section_id, (r - 1) * 51 + s - 1, 5000, CASE WHEN i % 3 = 0 THEN 'child' ELSE '' END FROM sample;
INSERT INTO inventory.reservation_ga
SELECT 'e', reservation_id, 'G' || i % 8 / 4 + 1, 1, 5000, CASE WHEN i % 3 = 0 THEN 'child' ELSE '' END
FROM sample WHERE i % 4 = 0;
INSERT INTO inventory.section (event_id, section_id, ordinal, name, kind, rows, seats_per_row, capacity, seats_remaining,
    price_minor, fee_minor)
SELECT 'e', section_id, row_number() OVER (), 'n', 'seated', 20, 50, count(*), count(*) FILTER (WHERE status = 'expired'),
       5000, 0 FROM sample GROUP BY section_id
UNION ALL
SELECT 'e', 'G' || i % 8 / 4 + 1, 1000 + i % 8, 'n', 'ga', 0, 0, 100000, 100000 - count(*), 5000, 0
FROM sample WHERE i % 4 = 0 AND status <> 'expired' GROUP BY i % 8
UNION ALL
SELECT 'e', '~child', 2000, 'n', 'type', 0, 0, 1000000, 1000000 - count(*), 0, 0
FROM sample WHERE i % 3 = 0 AND status <> 'expired';
INSERT INTO inventory.customer_usage SELECT 'e', 'c' || i, 1 FROM sample;
INSERT INTO inventory.revoked_pass
SELECT 'e', 'j' || i, extract(epoch FROM now()) * 1000 + CASE WHEN i <= 100 THEN 60000 ELSE -9000000 END FROM sample;
INSERT INTO inventory.release_log (event_id, reservation_id, section_id, positions, ga_quantity, reason, late_ms)
SELECT 'e', reservation_id, section_id, '{{1}}', 0, 'deadline', 0 FROM sample WHERE status = 'expired';
INSERT INTO inventory.drift (event_id, item, actual, expected, since, action) SELECT 'e', 'w', 's', 'b', now(), 'left' FROM sample;
INSERT INTO inventory.oversell (event_id, section_id, position, excess, percent, policy, status)
SELECT 'e', section_id, i, 1, 1, 'cancel', CASE WHEN i <= 5 THEN 'waiting' WHEN i <= 10 THEN 'cancelling' ELSE 'cancelled' END
FROM sample;
INSERT INTO inventory.oversell_return (event_id, reservation_id, oversell_id, order_reference, returned_at, refunded_at)
SELECT 'e', reservation_id, i, 'o' || i, now(), CASE WHEN i > 10 THEN now() END FROM sample;
INSERT INTO inventory.allotment (event_id, allotment_id, name, kind, places, opens_at_ms, opened_at)
SELECT 'e', 'a' || i, 'n', 'buffer', '{{"seats": [], "rows": [], "ga": [{{"section_id": "G1", "quantity": 1}}]}}', i, CASE WHEN i > 10 THEN now() END FROM generate_series(1, {size} / 50) AS i;
INSERT INTO inventory.allotment_ga
SELECT 'e', 'a' || i, 'G' || i % 2 + 1, CASE WHEN i <= 10 THEN 1 ELSE 0 END FROM generate_series(1, {size} / 50) AS i;
UPDATE inventory.section SET blocked = 5, seats_remaining = seats_remaining - 5 WHERE kind = 'ga';
INSERT INTO inventory.audit_log (subject, actor, action, version, before, after)
SELECT 'event:e', 'a', 'block', i, '{{}}', '{{}}' FROM sample;
INSERT INTO inventory.ticket_return (event_id, return_id, reservation_id, places, kept_blocked, reason)
SELECT 'e', 't' || i, reservation_id, '[]', false, 'r' FROM sample;
