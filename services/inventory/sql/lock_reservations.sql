-- Reservations about to change, locked in the order of their key, and the ledger's clock.
SELECT reservation_id FROM inventory.reservation
WHERE reservation_id = ANY(CAST(:ids AS text[]))
ORDER BY reservation_id
FOR UPDATE
