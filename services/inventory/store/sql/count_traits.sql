-- Places by section and trait: the seats of its runs, and a general-admission section whole, with its pools. Each run is a range of the key of
-- seats; of general admission what is neither left nor held nor blocked is sold.
WITH traits AS MATERIALIZED (
    SELECT s.section_id, s.ordinal, s.kind, t.trait, t.runs
    FROM inventory.section s CROSS JOIN LATERAL jsonb_each(s.traits) AS t (trait, runs) WHERE s.event_id = :event_id
), held AS MATERIALIZED (
    SELECT place.section_id, sum(place.quantity)::bigint AS n
    FROM (SELECT event_id, reservation_id FROM inventory.reservation
          WHERE event_id = :event_id AND status IN ('pending_payment', 'paying') OFFSET 0) AS r
    CROSS JOIN LATERAL (
        SELECT g.section_id, g.quantity FROM inventory.reservation_ga g
        WHERE g.event_id = r.event_id AND g.reservation_id = r.reservation_id
    ) AS place
    WHERE EXISTS (SELECT FROM traits WHERE kind = 'ga') GROUP BY place.section_id
), counted AS (
    SELECT t.section_id, t.ordinal, t.trait, n.capacity, n.available, n.held, n.sold
    FROM traits t CROSS JOIN LATERAL jsonb_array_elements(t.runs) AS run
    CROSS JOIN LATERAL (
        SELECT count(*) AS capacity, count(*) FILTER (WHERE e.status = 'available') AS available,
            count(*) FILTER (WHERE e.status = 'held') AS held, count(*) FILTER (WHERE e.status = 'sold') AS sold
        FROM inventory.seat e
        WHERE e.event_id = :event_id AND e.section_id = t.section_id
            AND e.position BETWEEN (run ->> 0)::integer AND (run ->> 1)::integer
    ) AS n
    WHERE t.kind = 'seated'
    UNION ALL
    SELECT t.section_id, t.ordinal, t.trait, s.capacity + s.overbooked_accepted, s.seats_remaining, coalesce(h.n, 0),
        s.capacity + s.overbooked_accepted - s.blocked - s.seats_remaining - coalesce(h.n, 0)
    FROM traits t JOIN inventory.section s ON s.event_id = :event_id AND split_part(s.section_id, '~', 1) = t.section_id
    LEFT JOIN held h ON h.section_id = s.section_id
    WHERE t.kind = 'ga'
)
SELECT section_id, trait, sum(capacity)::bigint AS capacity, sum(available)::bigint AS available, sum(held)::bigint AS held,
    sum(sold)::bigint AS sold
FROM counted GROUP BY section_id, ordinal, trait ORDER BY ordinal, trait
