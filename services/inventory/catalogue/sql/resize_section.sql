-- Changes the capacity of a GA section, unless more places are taken.
UPDATE inventory.section SET seats_remaining = seats_remaining + CAST(:capacity AS int) - capacity,
capacity = CAST(:capacity AS int), version = version + 1
WHERE event_id = :event_id AND section_id = :section_id
AND seats_remaining + CAST(:capacity AS int) - capacity >= 0
