-- Holders of an experiment by the variant and length of their first hold: how many, how many bought, how many have no outcome
-- yet. Only fans who began before the first one whose outcome is open count; nobody is waited for longer than settle_s.
WITH fan AS (
    SELECT holder, min(created_at) AS began_at, (array_agg(variant ORDER BY created_at))[1] AS variant,
           (array_agg(hold_ttl_s ORDER BY created_at))[1] AS hold_ttl_s,
           bool_or(confirmed_at IS NOT NULL) AS bought, bool_or(status IN ('pending_payment', 'paying')) AS is_open
    FROM inventory.reservation
    WHERE event_id = :event_id AND variant IS NOT NULL
    GROUP BY holder
),
counted AS (
    SELECT coalesce(min(began_at), 'infinity') AS before FROM fan
    WHERE is_open AND NOT bought AND began_at > clock_timestamp() - CAST(:settle_s AS int) * interval '1 second'
)
SELECT variant AS arm, hold_ttl_s, count(*) FILTER (WHERE began_at < before) AS fans,
       count(*) FILTER (WHERE began_at < before AND bought) AS bought,
       count(*) FILTER (WHERE began_at >= before) AS open
FROM fan, counted
GROUP BY variant, hold_ttl_s
ORDER BY count(*) DESC, variant, hold_ttl_s
LIMIT :rows_max
