-- Orders created and confirmed in each step of time since :start, and the tickets confirmed in it; and of the whole sale the
-- tickets of each section that were sold and came back, those of each price type with what they cost (none of an event without
-- types), the money by currency as our ledger has it, and the orders that ended without a sale.
WITH own AS (
    SELECT created_at, confirmed_at, (
        SELECT sum(jsonb_array_length(line -> 'tickets')) FROM jsonb_array_elements(lines) AS line) AS tickets
    FROM orders."order" WHERE event_id = :event_id AND status <> 'tombstone'
), steps AS (
    SELECT floor(date_part('epoch', happened.at - CAST(:start AS timestamptz)) / :step_s)::bigint AS step,
        count(*) FILTER (WHERE happened.what = 'ordered') AS ordered,
        count(*) FILTER (WHERE happened.what = 'confirmed') AS confirmed,
        coalesce(sum(own.tickets) FILTER (WHERE happened.what = 'confirmed'), 0)::bigint AS tickets
    FROM own
    CROSS JOIN LATERAL (VALUES ('ordered', own.created_at), ('confirmed', own.confirmed_at)) AS happened (what, at)
    WHERE happened.at >= :start AND happened.at < CAST(:start AS timestamptz) + make_interval(secs => :step_s * :steps)
    GROUP BY 1 ORDER BY 1
), sections AS (
    SELECT line ->> 'section_id' AS section_id, sum(jsonb_array_length(line -> 'tickets'))::bigint AS sold,
        coalesce(sum((line ->> 'returned')::bigint), 0)::bigint AS returned,
        min(o.confirmed_at) AS first_at, max(o.confirmed_at) AS last_at
    FROM orders."order" o, jsonb_array_elements(o.lines) AS line
    WHERE o.event_id = :event_id AND o.confirmed_at IS NOT NULL
    GROUP BY 1 ORDER BY 1
), named AS (
    SELECT e.currency, t.n, t.named ->> 'type_id' AS type_id, t.named ->> 'name' AS name
    FROM orders.event e, jsonb_array_elements(e.price_types) WITH ORDINALITY AS t(named, n)
    WHERE e.event_id = :event_id
), sold_types AS (
    SELECT coalesce(line ->> 'type_id', (SELECT type_id FROM named WHERE n = 1)) AS type_id,
        sum(jsonb_array_length(line -> 'tickets'))::bigint AS sold,
        coalesce(sum((line ->> 'returned')::bigint), 0)::bigint AS returned, sum((line ->> 'paid_minor')::bigint)::bigint AS paid_minor
    FROM orders."order" o, jsonb_array_elements(o.lines) AS line
    WHERE o.event_id = :event_id AND o.confirmed_at IS NOT NULL AND EXISTS (SELECT FROM named)
    GROUP BY 1
), types AS (
    SELECT type_id, coalesce(t.name, type_id) AS name, coalesce(s.sold, 0) AS sold, coalesce(s.returned, 0) AS returned,
        coalesce(s.paid_minor, 0) AS paid_minor, coalesce(t.currency, (SELECT currency FROM named LIMIT 1)) AS currency
    FROM named t FULL JOIN sold_types s USING (type_id)
    ORDER BY t.n NULLS LAST, type_id
), money AS (
    SELECT m.currency, count(*) FILTER (WHERE m.kind = 'charge') AS charges,
        coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'charge'), 0)::bigint AS charged_minor,
        count(*) FILTER (WHERE m.kind = 'refund') AS refunds,
        coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund'), 0)::bigint AS refunded_minor,
        coalesce(sum(m.amount_minor) FILTER (WHERE m.kind = 'refund' AND starts_with(m.provider_ref, 'outside:')), 0)::bigint
            AS refunded_outside_minor,
        count(*) FILTER (WHERE m.kind = 'dispute') AS disputes,
        coalesce(sum(CASE m.kind WHEN 'dispute' THEN m.amount_minor WHEN 'reinstatement' THEN -m.amount_minor END), 0)::bigint
            AS disputed_minor
    FROM orders."order" o JOIN orders.money_entry m USING (reference)
    WHERE o.event_id = :event_id
    GROUP BY m.currency ORDER BY m.currency
), unsold AS (
    SELECT status, coalesce(end_reason, '') AS reason, count(*) AS orders
    FROM orders."order" WHERE event_id = :event_id AND status IN ('cancelled', 'expired', 'late_paid', 'review')
    GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
)
SELECT (SELECT coalesce(jsonb_agg(s), '[]') FROM steps AS s) AS steps,
    (SELECT coalesce(jsonb_agg(s), '[]') FROM sections AS s) AS sections,
    (SELECT coalesce(jsonb_agg(s), '[]') FROM types AS s) AS types,
    (SELECT coalesce(jsonb_agg(s), '[]') FROM money AS s) AS money,
    (SELECT coalesce(jsonb_agg(s), '[]') FROM unsold AS s) AS unsold
