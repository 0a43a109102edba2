-- Searches orders, newest first, beyond the last one of the page before: by exact reference, reservation, e-mail, seat or
-- charge of these providers, or by a part of the name of the customer or on a ticket.
SELECT o.reference FROM orders."order" o
WHERE o.status <> 'tombstone'
    AND (CAST(:event_id AS text) IS NULL OR o.event_id = CAST(:event_id AS text))
    AND (CAST(:status AS text) IS NULL OR o.status = CAST(:status AS text))
    AND (CAST(:since AS timestamptz) IS NULL OR o.created_at >= CAST(:since AS timestamptz))
    AND (CAST(:until AS timestamptz) IS NULL OR o.created_at < CAST(:until AS timestamptz))
    AND (CAST(:before AS text) IS NULL OR (o.created_at, o.reference) < (
        SELECT a.created_at, a.reference FROM orders."order" a WHERE a.reference = CAST(:before AS text)))
    AND (CAST(:mail_failed AS boolean) IS NOT TRUE OR o.unmailed_at IS NOT NULL)
    AND (CAST(:q AS text) IS NULL OR o.reference = upper(replace(CAST(:q AS text), ' ', '')) OR o.reservation_id = CAST(:q AS text)
        OR lower(o.customer_email) = lower(CAST(:q AS text))
        OR strpos(lower(o.customer_name), lower(CAST(:q AS text))) > 0
        OR EXISTS (
            SELECT 1 FROM jsonb_path_query(o.lines, '$[*].tickets[*].name') AS named(name)
            WHERE strpos(lower(named.name #>> '{}'), lower(CAST(:q AS text))) > 0)
        OR o.lines @> jsonb_build_array(jsonb_build_object('seat_id', CAST(:q AS text)))
        OR o.attempts @> jsonb_build_array(jsonb_build_object('provider_ref', CAST(:q AS text)))
        OR o.reference IN (
            SELECT m.reference FROM orders.money_entry m
            WHERE m.provider = ANY(CAST(:providers AS text[])) AND m.provider_ref = CAST(:q AS text)))
ORDER BY o.created_at DESC, o.reference DESC
LIMIT :count_max
