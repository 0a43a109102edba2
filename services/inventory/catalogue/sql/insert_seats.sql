-- Inserts the seats of some rows of a section, with what stands on them; a position is an offset in its map. `of_rows` says which
-- list of `seats` has the labels of a row's seats.
INSERT INTO inventory.seat (event_id, section_id, position, row, number, label)
SELECT :event_id, :section_id, (CAST(:first AS int) + r.n - 2) * (CAST(:seats_per_row AS int) + 1) + s.number - 1,
    r.label, s.number, nullif(s.label, CAST(s.number AS text))
FROM unnest(CAST(:rows AS text[]), CAST(:of_rows AS int[])) WITH ORDINALITY AS r (label, seats, n)
CROSS JOIN LATERAL jsonb_array_elements_text(CAST(:seats AS jsonb) -> r.seats) WITH ORDINALITY AS s (label, number)
