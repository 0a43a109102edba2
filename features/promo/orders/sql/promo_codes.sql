-- Promo codes as they are now, and how often they are used: in all where that is limited, and by the given customer. A
-- redemption counts while its order is sold or may still be.
WITH requested AS (
    SELECT DISTINCT event_id, code, customer_key
    FROM unnest(CAST(:event_ids AS text[]), CAST(:codes AS text[]), CAST(:customer_keys AS text[]))
        AS a(event_id, code, customer_key)
), by_code AS (
    SELECT u.event_id, u.code, count(*) AS uses
    FROM (SELECT DISTINCT event_id, code FROM requested) a
    JOIN orders.promo_code p USING (event_id, code)
    JOIN orders.promo_redemption u USING (event_id, code)
    JOIN orders."order" o ON o.reference = u.reference
    WHERE p.uses_max IS NOT NULL
    AND o.status NOT IN ('cancelled', 'expired') AND NOT (o.status = 'refunded' AND o.confirmed_at IS NULL)
    GROUP BY u.event_id, u.code
), by_customer AS (
    SELECT u.event_id, u.code, u.customer_key, count(*) AS uses
    FROM requested a
    JOIN orders.promo_redemption u USING (event_id, code, customer_key)
    JOIN orders."order" o ON o.reference = u.reference
    WHERE o.status NOT IN ('cancelled', 'expired') AND NOT (o.status = 'refunded' AND o.confirmed_at IS NULL)
    GROUP BY u.event_id, u.code, u.customer_key
)
SELECT a.event_id, a.code, a.customer_key, coalesce(p.written, p.code) AS name, p.percent, p.amount_minor, p.uses_max,
    p.customer_uses_max, p.section_ids, p.tickets_min, coalesce(c.uses, 0) AS uses, coalesce(m.uses, 0) AS customer_uses,
    p.stopped_at IS NULL AND coalesce(p.valid_from <= clock_timestamp(), true)
        AND coalesce(clock_timestamp() < p.valid_until, true) AS is_active
FROM requested a
JOIN orders.promo_code p USING (event_id, code)
LEFT JOIN by_code c USING (event_id, code)
LEFT JOIN by_customer m USING (event_id, code, customer_key)
