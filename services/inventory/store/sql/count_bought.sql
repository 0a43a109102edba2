-- Bought tickets of a key range of the reservations: seats by holder, GA tickets by holder and section, and all
-- tickets by price type. Holders whose names
-- have the same last characters are counted together, and those of groups that are not wanted all together, without a name.
WITH buyer AS (
    SELECT r.event_id, r.reservation_id,
        CASE WHEN CAST(:groups AS text[]) IS NULL OR right(r.holder, :ending) = ANY(CAST(:groups AS text[]))
            THEN right(r.holder, :characters) END AS holder
    FROM inventory.reservation r
    WHERE r.event_id = :event_id AND r.reservation_id > :after AND r.reservation_id <= :upto AND r.status = 'confirmed'
)
SELECT b.holder, CAST(NULL AS text) AS section_id, count(*) AS tickets
FROM buyer b JOIN inventory.reservation_seat x USING (event_id, reservation_id)
GROUP BY 1
UNION ALL
SELECT b.holder, g.section_id, sum(g.quantity)
FROM buyer b JOIN inventory.reservation_ga g USING (event_id, reservation_id)
GROUP BY 1, g.section_id
UNION ALL
SELECT NULL, '~' || x.type_id, count(*)
FROM buyer b JOIN inventory.reservation_seat x USING (event_id, reservation_id) WHERE x.type_id <> ''
GROUP BY x.type_id
UNION ALL
SELECT NULL, '~' || g.type_id, sum(g.quantity)
FROM buyer b JOIN inventory.reservation_ga g USING (event_id, reservation_id) WHERE g.type_id <> ''
GROUP BY g.type_id
