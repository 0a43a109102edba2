-- The open orders of this process that it does not know of (:known it does): the answer to what made them its own was lost.
SELECT p.reference, p.owner, p.epoch, p.event_id, p.join_seq,
    greatest(0, extract(epoch FROM p.due_at - clock_timestamp()))::double precision AS due_in_s
FROM orders.open_order p
WHERE p.owner = :owner AND p.reference <> ALL(CAST(:known AS text[]))
