-- Everything that happened to an order, oldest first, without card tokens and raw webhooks.
WITH o AS (SELECT * FROM orders."order" WHERE reference = :reference)
SELECT at, kind, what FROM (
    SELECT created_at AS at, 1 AS turn, 'order' AS kind, jsonb_build_object('what', 'ordered', 'total_minor', total_minor,
        'currency', currency, 'reservation_id', reservation_id) AS what FROM o
    UNION ALL
    SELECT cancel_requested_at, 2, 'order', jsonb_build_object('what', 'cancel asked', 'reason', end_reason) FROM o
    UNION ALL
    SELECT confirmed_at, 2, 'order', jsonb_build_object('what', 'confirmed', 'charge_ref', charge_ref) FROM o
    UNION ALL
    SELECT ended_at, 2, 'order', jsonb_build_object('what', 'ended unsold', 'status', status, 'reason', end_reason)
    FROM o WHERE confirmed_at IS NULL
    UNION ALL
    SELECT released_at, 3, 'order', jsonb_build_object('what', 'released') FROM o
    UNION ALL
    SELECT created_at, 2, 'command', jsonb_build_object('command_id', command_id, 'command_type', command_type,
        'status', status, 'attempts', attempts, 'payload', payload, 'processed_at', processed_at, 'error', error_message)
    FROM orders.checkout_command WHERE reference = :reference
    UNION ALL
    SELECT created_at, 2, 'attempt', jsonb_build_object('n', n, 'provider', provider, 'method', method,
        'amount_minor', amount_minor, 'currency', currency, 'provider_ref', provider_ref, 'status', status,
        'reason', reason, 'errors', errors, 'changed_at', changed_at)
    FROM orders.payment_attempt WHERE reference = :reference
    UNION ALL
    SELECT created_at, 4, 'money', jsonb_build_object('what', kind, 'amount_minor', amount_minor, 'currency', currency,
        'provider', provider, 'provider_ref', provider_ref, 'charge_ref', charge_ref, 'occurred_at', occurred_at)
    FROM orders.money_entry WHERE reference = :reference
    UNION ALL
    SELECT received_at, 3, 'webhook', jsonb_build_object('provider', provider, 'webhook_id', webhook_id, 'what', kind,
        'applied_at', applied_at, 'tries', tries)
    FROM orders.webhook_inbox WHERE reference = :reference
    UNION ALL
    SELECT created_at, 3, 'refund', jsonb_build_object('id', id, 'provider', provider, 'charge_ref', charge_ref,
        'amount_minor', amount_minor, 'currency', currency, 'reason', reason, 'asked_by', requested_by, 'status', status,
        'tickets', tickets, 'return_to_sale', return_to_sale, 'returned', returned, 'done_at', done_at)
    FROM orders.refund WHERE reference = :reference
    UNION ALL
    SELECT at, 1, 'desk', jsonb_build_object('action', action, 'actor', actor, 'role', role, 'reason', reason,
        'before', before, 'after', after)
    FROM orders.audit_log WHERE subject = 'order' || chr(58) || :reference
) AS rows
WHERE at IS NOT NULL
ORDER BY at, turn
LIMIT :count_max
