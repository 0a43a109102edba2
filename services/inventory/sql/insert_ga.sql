-- GA tickets of new reservations; their sections have been taken from already.
INSERT INTO inventory.reservation_ga (event_id, reservation_id, section_id, quantity, unit_price_minor)
SELECT :event_id, reservation_id, section_id, quantity, price
FROM unnest(CAST(:ids AS text[]), CAST(:section_ids AS text[]), CAST(:quantities AS int[]), CAST(:prices AS bigint[]))
    AS asked (reservation_id, section_id, quantity, price)
ORDER BY reservation_id, section_id
