-- How many places each section of these events has with its pools, and how many tickets of each price type there are. $1 events
SELECT event_id, CASE kind WHEN 'type' THEN section_id ELSE split_part(section_id, '~', 1) END AS section_id, min(kind) AS kind,
    sum(greatest(capacity, seats_remaining) + overbooked_accepted) AS capacity
FROM inventory.section WHERE event_id = ANY($1::text[]) GROUP BY 1, 2
