-- The open orders of this process of which something was asked elsewhere, and whose message was lost.
UPDATE orders.open_order p SET woken = false
FROM (SELECT w.reference FROM orders.open_order w WHERE w.owner = :owner AND w.woken
      ORDER BY w.reference LIMIT 1000 FOR UPDATE SKIP LOCKED) AS w
WHERE p.reference = w.reference
RETURNING p.reference, p.owner, p.epoch, p.event_id, p.join_seq, 0.0::double precision AS due_in_s
