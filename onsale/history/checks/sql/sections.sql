-- How many places each section of these events has. $1 events
SELECT event_id, section_id, kind, greatest(capacity, seats_remaining) + overbooked_accepted AS capacity
FROM inventory.section WHERE event_id = ANY($1::text[])
