-- Whoever numbers places of this lane by the ledger takes turns here.
SELECT lane FROM queue.lane WHERE event_id = :event_id AND epoch = :epoch AND lane = :lane FOR UPDATE
