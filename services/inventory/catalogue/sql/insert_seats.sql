-- Inserts the seats of some rows of a section; a position is an offset in its map.
INSERT INTO inventory.seat (event_id, section_id, position, row, number)
SELECT :event_id, :section_id, (r - 1) * (CAST(:seats_per_row AS int) + 1) + n - 1, CAST(r AS text), n
FROM generate_series(CAST(:first AS int), CAST(:rows AS int)) AS r,
generate_series(1, CAST(:seats_per_row AS int)) AS n
