-- A sale in which three fans came: the first bought a seat and two tickets, the second was called, the third waits.
INSERT INTO queue.room (event_id, epoch, version, generation, redis_instance_id, state, ordering, rate_per_s, burst,
    max_active, session_s, claim_window_s, liveness_window_s, max_misses, returning_share, tickets_per_order, stock_coupling)
VALUES ('arena', 1, 1, 1, 'r', 'open', 'fifo', 1, 5, 10, 600, 120, 10, 3, 0.1, 6, true);
INSERT INTO queue.audit_log (at, actor, action, subject, after)
VALUES (to_timestamp(1800000000), 'system', 'open', 'event:arena', '{"epoch": 1, "rate_per_s": 1, "burst": 5,
    "max_active": 10, "claim_window_s": 120, "liveness_window_s": 10, "state": "open", "rollout_percent": 100}');
INSERT INTO queue.place (event_id, epoch, lane, join_seq, holder, joined_at)
SELECT 'arena', 1, 0, n, 'fan-' || n, to_timestamp(1800000010 + n) FROM generate_series(1, 3) AS n;
INSERT INTO queue.admission (event_id, epoch, lane, join_seq, call, state, deadline_ms, jti, expires_at_ms)
VALUES ('arena', 1, 0, 1, 1, 'claimed', 1800000140000, 'jti-1', 1800000630000),
       ('arena', 1, 0, 2, 1, 'called', 1800000150000, NULL, NULL);

INSERT INTO inventory.event (event_id, name, venue, currency, starts_at, hold_ttl_s, pay_ttl_s, grace_s, tickets_per_order,
    tickets_per_customer, active_reservations_per_customer, open_orders_per_customer)
VALUES ('arena', 'A show', 'A hall', 'EUR', now(), 300, 600, 10, 6, 6, 3, 3);
INSERT INTO inventory.section (event_id, section_id, ordinal, name, kind, rows, seats_per_row, capacity, seats_remaining,
    price_minor, fee_minor)
VALUES ('arena', 'A', 0, 'Block', 'seated', 1, 3, 3, 2, 5000, 0), ('arena', 'GA1', 1, 'Floor', 'ga', 0, 0, 4, 2, 3000, 0);
INSERT INTO inventory.seat (event_id, section_id, position, row, number, status, reservation_id)
VALUES ('arena', 'A', 0, '1', 1, 'sold', 'R1'), ('arena', 'A', 1, '1', 2, 'available', NULL),
       ('arena', 'A', 2, '1', 3, 'available', NULL);
INSERT INTO inventory.reservation (event_id, reservation_id, holder, total_minor, currency, status, order_reference,
    reserved_until_ms, fingerprint, ended_at)
VALUES ('arena', 'R1', 'fan-1', 11000, 'EUR', 'confirmed', 'O1', 1800000700000, '', NULL),
       ('arena', 'R2', 'fan-1', 5000, 'EUR', 'expired', NULL, 1800000339000, '', to_timestamp(1800000350));
INSERT INTO inventory.reservation_seat (event_id, reservation_id, section_id, position, unit_price_minor)
VALUES ('arena', 'R1', 'A', 0, 5000), ('arena', 'R2', 'A', 1, 5000);
INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor)
VALUES ('arena', 'R1', 'GA1', 2, 3000);

INSERT INTO orders."order" (reference, status, event_id, reservation_id, owner_id, total_minor, currency, expires_at,
    confirmed_at, fulfilled_at, charge_ref, lines)
VALUES ('O1', 'confirmed', 'arena', 'R1', 'arena:fan-1', 11000, 'EUR', to_timestamp(1800000700), now(), now(), 'ch_1',
    '[{"section_id": "A", "seat_id": "A-1-1", "unit_price_minor": 5000, "paid_minor": 5000, "tickets": [{"id": "T1"}]},
      {"section_id": "GA1", "unit_price_minor": 3000, "paid_minor": 6000, "tickets": [{"id": "T2"}, {"id": "T3"}]}]');
INSERT INTO orders.money_entry (reference, kind, amount_minor, currency, provider, provider_ref, charge_ref, occurred_at)
VALUES ('O1', 'charge', 11000, 'EUR', 'sandbox', 'ch_1', 'ch_1', to_timestamp(1800000650));
