-- The command at :place in the journal of an order.
SELECT c.command_id::text, c.reference, c.event_id, c.command_type, c.caused_by, c.payload, c.status, c.attempts,
    c.created_at, c.processed_at, c.error_message
FROM orders.checkout_command c WHERE c.reference = :reference AND c.place = :place
