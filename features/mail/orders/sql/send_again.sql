-- Queues the confirmations of the latest orders of an address again, once each in ten minutes, to the address they have.
-- It is stored as it was typed: with its domain in ASCII or in Unicode.
INSERT INTO orders.mail (mail_key, kind, address, event_id, reference, budget)
SELECT concat_ws(chr(58), 'again', o.reference, floor(extract(epoch FROM now()) / 600)::text), 'confirmed',
    o.customer_email, o.event_id, o.reference, 'asked'
FROM orders."order" o
WHERE lower(o.customer_email) IN (lower(CAST(:address AS text)), lower(CAST(:in_unicode AS text)))
    AND o.status = ANY(CAST(:statuses AS text[]))
ORDER BY o.created_at DESC LIMIT CAST(:many AS integer)
ON CONFLICT DO NOTHING
