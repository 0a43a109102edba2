-- Says that this process is alive, and how many orders more it can work on (below 0: how many wait here). Returns what the others can, and the owners of
-- open orders that are not alive (one without a name is nobody): the owners in the index are walked, one step for each. And
-- whether something was asked of our orders that we did not hear of, or webhooks are to be applied.
WITH RECURSIVE beat AS (
    INSERT INTO orders.process (owner, free) VALUES (:owner, :free)
    ON CONFLICT (owner) DO UPDATE SET beat_at = clock_timestamp(), free = excluded.free
), forgotten AS (
    DELETE FROM orders.process WHERE beat_at < clock_timestamp() - interval '1 hour' AND owner <> :owner
), owners AS (
    (SELECT owner FROM orders.open_order ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT p.owner FROM orders.open_order p WHERE p.owner > o.owner ORDER BY p.owner LIMIT 1)
    FROM owners o WHERE o.owner IS NOT NULL
), alive AS (
    SELECT p.owner, p.free FROM orders.process p
    WHERE p.beat_at > clock_timestamp() - make_interval(secs => :takeover_s)
)
SELECT (SELECT coalesce(sum(greatest(a.free, 0)), 0)::bigint FROM alive a WHERE a.owner <> :owner) AS free_elsewhere,
    array(SELECT o.owner FROM owners o WHERE o.owner <> :owner AND NOT EXISTS (
        SELECT FROM alive a WHERE a.owner = o.owner)) AS dead,
    EXISTS (SELECT FROM orders.open_order p WHERE p.owner = :owner AND p.woken) AS woken,
    EXISTS (SELECT FROM orders.webhook_inbox w WHERE w.applied_at IS NULL AND w.due_at <= now()) AS has_webhooks
