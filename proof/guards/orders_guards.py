"""The guards of orders."""

from proof.guards.guard import Guard

ORDERS = "services/orders"
WEBHOOKS = "features/webhooks/orders"
MAIL = "features/mail/orders"
RULES = f"{ORDERS}/model/rules.py"
UPDATES = f"{ORDERS}/model/update.py"
CHECKOUT = f"{ORDERS}/checkout/checkout.py"
PURCHASE = f"{ORDERS}/steps/purchase.py"
REQUESTS = f"{ORDERS}/requests/requests.py"
NAMES = f"{ORDERS}/requests/names.py"
WORKER = f"{ORDERS}/worker/worker.py"
ONE_ROW = f"{ORDERS}/migrations/versions/0008_one_row.sql"
QUOTE = f"{ORDERS}/pricing/quote.py"
PROMO = "features/promo/orders"
SUPPORT = "features/support/orders"
NEXT_STEPS = "test_the_next_step_follows_from_the_rows"
DECISIONS = (
    Guard(
        "Only money of exactly the order's total and currency sells it",
        f"{ORDERS}/model/order.py", "(c.amount_minor, c.currency) == price", "c.amount_minor == price[0]", NEXT_STEPS,
    ),
    Guard(
        "Money that was given back sells nothing",
        f"{ORDERS}/model/order.py", "if not c.refunded_minor and (", "if (",
        "test_money_that_was_refunded_pays_for_nothing",
    ),
    Guard(
        "A cancelled order is not confirmed on an authorisation",
        RULES, 'return "cancel_charge" if order.cancel_requested else "confirm"', 'return "confirm"', NEXT_STEPS,
    ),
    Guard(
        "An authorisation of another amount is looked at by a person",
        RULES, "        if attempt.reason == MISMATCH:\n", "        if False:\n", NEXT_STEPS,
    ),
    Guard(
        "An order past its deadline is not charged",
        RULES, "if not (order.cancel_requested or order.is_late):", "if not order.cancel_requested:", NEXT_STEPS,
    ),
    Guard(
        "A cancelled order is not charged",
        RULES, "if not (order.cancel_requested or order.is_late):", "if not order.is_late:", NEXT_STEPS,
    ),
    Guard(
        "A late payment is given back if the fan paid too late",
        RULES, "in_time = charge is not None and charge.occurred_at_ms <= order.expires_at_ms + order.grace_s * 1000",
        "in_time = charge is not None", NEXT_STEPS,
    ),
    Guard(
        "A late payment of an order that its fan cancelled is given back",
        RULES, 'not in ("fan", "operator", "taken", "capture")', "not in ()", NEXT_STEPS,
    ),
    Guard(
        "A second charge is given back alone",
        RULES, "    if order.status in SALE_STATUSES:\n        return \"request_refund\"\n", "", NEXT_STEPS,
    ),
    Guard(
        "What a provider tells of one charge is no sync of all",
        f"{ORDERS}/steps/refund.py", "    update.record_charges(refund.provider, [charge])\n",
        "    update.record_charges(refund.provider, [charge])\n    update.synced = True\n",
        "test_a_sync_that_is_requested_before_a_rejected_refund_finds_a_second_charge",
    ),
    Guard(
        "A capture is given up after three failures",
        RULES, 'order.status != "confirmed" or attempt.errors >= CAPTURES_MAX', 'order.status != "confirmed"',
        NEXT_STEPS,
    ),
    Guard(
        "A sale whose money never came is revoked",
        RULES, '        return "revoke_unpaid_sale"', '        return "wait"', NEXT_STEPS,
    ),
    Guard(
        "An order that ended unpaid gives its tickets back",
        RULES, "    if never_sold and not order.released:", "    if False:", NEXT_STEPS,
    ),
    Guard(
        "Tickets are issued for money that is there",
        RULES, "order.status in SOLD_STATUSES and order.is_paid and", "order.status in SOLD_STATUSES and", NEXT_STEPS,
    ),
    Guard(
        "Money that moved is never forgotten",
        f"{ORDERS}/model/order.py", '"succeeded": frozenset(),', '"succeeded": frozenset({"failed"}),',
        "test_an_attempt_never_leaves_success",
    ),
    Guard(
        "An ended order is sold on late money only",
        f"{ORDERS}/model/order.py", '"cancelled": frozenset({"late_paid"}),', '"cancelled": frozenset({"late_paid", "confirmed"}),',
        "test_an_ended_order_is_confirmed_only_after_late_money",
    ),
    Guard(
        "An order becomes only what may follow from its status",
        UPDATES, "assert can_become(before, to)", "assert True or can_become(before, to)",
        "test_an_update_refuses_a_status_that_cannot_follow",
    ),
    Guard(
        "A charge of another order changes nothing here",
        UPDATES, "            if charge.reference != self.order.reference:\n                continue\n", "",
        "test_a_charge_of_another_order_changes_nothing",
    ),
    Guard(
        "A refund at the provider is entered once",
        UPDATES, "        if amount_minor <= 0:\n            return\n", "",
        "test_repeated_and_reordered_webhooks_enter_an_outside_refund_once",
    ),
    Guard(
        "An authorisation of another amount is a mismatch",
        UPDATES, "    is_ours = (charge.amount_minor, charge.currency) == (attempt.amount_minor, attempt.currency)",
        "    is_ours = True",
        "test_an_authorisation_of_another_amount_is_a_mismatch",
    ),
)  # fmt: skip
WRITES = (
    Guard(
        "A sold order that somebody changes is not shown as it was sold",
        f"{ORDERS}/store/store.py", "                    self.sold.pop(reference, None)\n", "                    pass\n",
        "test_a_sold_order_that_changes_is_forgotten_before_anybody_hears_of_it",
    ),
    Guard(
        "Nor by the process that sold it, if another one does",
        WORKER, "            self._store.sold.pop(reference, None)\n", "            pass\n",
        "test_an_order_that_was_just_sold_is_polled_without_the_database_until_something_is_asked_of_it",
    ),
    Guard(
        "An order that waits for a provider takes no worker",
        WORKER, "in_work - self._load.outside_now + self._pausing", "in_work",
        "test_an_order_that_waits_for_a_provider_takes_no_worker",
    ),
    Guard(
        "A worker pauses after a provider could not be reached",
        WORKER, "        self._pausing += 1\n", "        self._pausing += 0\n",
        "test_a_worker_pauses_after_a_provider_did_not_answer",
    ),
    Guard(
        "A provider that hangs takes no more than so many connections",
        WORKER, "min(self._workers_max - here, self._in_work_max - in_work)", "self._workers_max - here",
        "test_a_provider_that_hangs_does_not_take_all_memory_and_all_files",
    ),
    Guard(
        "A charge is entered once",
        f"{ORDERS}/migrations/versions/0001_first.sql",
        "    CONSTRAINT uq_money_entry_provider_provider_ref UNIQUE (provider, provider_ref),\n", "",
        "test_the_database_refuses_what_would_count_money_or_tickets_twice",
    ),
    Guard(
        "A reservation has one order, whatever is wrong elsewhere",
        ONE_ROW, "    CONSTRAINT uq_order_reservation_id UNIQUE (reservation_id),\n", "",
        "test_the_database_refuses_what_would_count_money_or_tickets_twice",
    ),
    Guard(
        "A key makes one order, whatever is wrong elsewhere",
        ONE_ROW, ",\n    CONSTRAINT uq_order_owner_id_key_hash UNIQUE (owner_id, key_hash)", "",
        "test_the_database_refuses_what_would_count_money_or_tickets_twice",
    ),
    Guard(
        "The audit finds a second live payment of an order",
        f"{ORDERS}/audit/sql/live_attempt_per_order.sql", "AND 1 < (", "AND 99 < (",
        "test_the_audit_finds_a_second_live_attempt_and_tickets_returned_too_often",
    ),
    Guard(
        "A refund is requested once",
        f"{ORDERS}/migrations/versions/0001_first.sql", ",\n    CONSTRAINT uq_refund_idem_key UNIQUE (idem_key)", "",
        "test_the_database_refuses_what_would_count_money_or_tickets_twice",
    ),
    Guard(
        "The audit finds a line that is refunded beyond its tickets",
        f"{ORDERS}/audit/sql/tickets_match_lines.sql", "NOT BETWEEN 0 AND l.quantity", "NOT BETWEEN 0 AND 99",
        "test_the_audit_finds_a_second_live_attempt_and_tickets_returned_too_often",
    ),
    Guard(
        "An order that inventory was told is dead cannot be written late",
        f"{ORDERS}/store/sql/insert.sql", "    ON CONFLICT DO NOTHING RETURNING",
        "    ON CONFLICT (reference) DO UPDATE SET version = excluded.version RETURNING",
        "test_an_order_cannot_be_written_after_its_tombstone",
    ),
    Guard(
        "A webhook is stored once, however often it comes",
        f"{ORDERS}/store/sql/store_webhooks.sql", "\nON CONFLICT DO NOTHING\nRETURNING", "\nON CONFLICT (provider, webhook_id) DO UPDATE SET applied_at = NULL\nRETURNING",
        "test_a_webhook_is_stored_and_applied_once",
    ),
)  # fmt: skip
CHECKOUTS = (
    Guard(
        "A key is not used again for another purchase",
        CHECKOUT, "        if fingerprint != wanted.fingerprint:", "        if False:",
        "test_a_repeated_request_is_replayed_and_another_body_is_refused",
    ),
    Guard(
        "Nobody gets a quote of somebody else's reservation",
        CHECKOUT, "        if any(customer.owns(owner) for customer in customers):", "        if True:",
        "test_only_the_holder_gets_a_quote_and_it_changes_nothing",
    ),
    Guard(
        "A reservation that was sold is not paid for again",
        CHECKOUT, '    if reservation.status == "confirmed":', "    if False:",
        "test_only_the_holder_gets_a_quote_and_it_changes_nothing",
    ),
    Guard(
        "A hold that ended cannot be ordered",
        CHECKOUT, "    if reservation.status not in PAYABLE_STATUSES:", "    if False:",
        "test_only_the_holder_gets_a_quote_and_it_changes_nothing",
    ),
    Guard(
        "A fan is charged what was shown, or asked again",
        CHECKOUT, "if (request.expected_total_minor, request.currency) != (quote.total_minor, held.currency):", "if False:",
        "test_an_order_at_an_old_price_is_refused_with_the_new_quote",
    ),
    Guard(
        "A fan is charged in the currency that was shown",
        CHECKOUT, "if (request.expected_total_minor, request.currency) != (quote.total_minor, held.currency):",
        "if request.expected_total_minor != quote.total_minor:",
        "test_an_invalid_order_is_refused_and_leaves_the_hold_unchanged",
    ),
    Guard(
        "The hold of an order that is refused is as it was before",
        CHECKOUT, "        except Problem:\n            await self._unbind(step, begun)\n", "        except Problem:\n",
        "test_an_invalid_order_is_refused_and_leaves_the_hold_unchanged",
    ),
    Guard(
        "The hold of an order that another process writes is not taken back",
        CHECKOUT, "if isinstance(begun, StepDone) and begun.binding is not None:", "if isinstance(begun, StepDone):",
        "test_a_repeat_leaves_the_hold_of_its_order_alone",
    ),
    Guard(
        "An unknown provider or method is refused before anything is bound",
        CHECKOUT, "            check_payment(self.providers, request.payment)\n", "",
        "test_an_invalid_order_is_refused_and_leaves_the_hold_unchanged",
    ),
    Guard(
        "Card numbers are refused, so none is stored or logged",
        f"{ORDERS}/checkout/requests.py", "    refuse_card_numbers(request, body)\n", "",
        "test_an_invalid_order_is_refused_and_leaves_the_hold_unchanged",
    ),
    Guard(
        "A card number is known by its check digit",
        f"{ORDERS}/checkout/requests.py", "if len(digits) < DIGITS_MIN or digits[0] in \"01\":", "if True:",
        "test_card_numbers_are_distinguished_from_tokens_telephone_numbers_and_times",
    ),
    Guard(
        "A refund's key is not used again for another refund",
        REQUESTS, "    if fingerprint is not None and fingerprint != request.fingerprint:", "    if False:",
        "test_an_amount_is_refunded_once_for_each_key",
    ),
    Guard(
        "An order ends later once only",
        REQUESTS, '        if order.status != "pending" or order.extended:', '        if order.status != "pending":',
        "test_only_once_also_for_two_requests_at_the_same_time",
    ),
    Guard(
        "Time to pay is for an order that waits",
        REQUESTS, 'if order.status != "pending" or order.cancel_requested:', "if False:",
        "test_nobody_else_and_no_order_that_has_ended",
    ),
    Guard(
        "A second payment does not wait for another process",
        REQUESTS, "decide, take=True)", "decide)",
        "test_a_second_payment_that_no_worker_begins_in_time_is_made_in_its_request",
    ),
    Guard(
        "No second payment begins while one is live",
        REQUESTS, 'if last.status in (*LIVE_STATUSES, "succeeded"):', "if False:",
        "test_a_second_attempt_is_refused_while_the_first_is_live",
    ),
    Guard(
        "An order that was sold cannot be cancelled by its fan",
        REQUESTS, '    if order.status != "pending":\n        raise OrderNotPending\n    update', "    update",
        "test_a_fan_pays_by_another_card_after_a_decline_and_no_more_once_it_is_sold",
    ),
    Guard(
        "Nobody reads somebody else's order",
        f"{ORDERS}/auth.py", "if not any(customer.owns(order.owner_id) for customer in await self.customers(request)):",
        "if not await self.customers(request):",
        "test_somebody_elses_reservation_or_order_is_not_found",
    ),
    Guard(
        "The token of one order opens no other",
        f"{ORDERS}/auth.py", "if any(self._opened(text) == order.reference for text in texts):", "if any(map(self._opened, texts)):",
        "test_the_token_of_an_order_opens_no_other",
    ),
    Guard(
        "Another site cannot cancel with an order's cookie",
        f"{ORDERS}/auth.py", "            if token is None and request.method not in SAFE_METHODS:", "            if False:",
        "test_another_site_cannot_write_with_an_orders_cookie",
    ),
    Guard(
        "Another site cannot order with a fan's pass",
        f"{ORDERS}/auth.py", "            if request.method not in SAFE_METHODS:\n                require_own_origin(fields, secure=self.secure_cookies)\n        for",
        "        for",
        "test_an_expired_pass_in_a_cookie_orders_from_our_own_origin_only",
    ),
    Guard(
        "An event of another show is not a customer's own order",
        f"{ORDERS}/model/order.py", "return holder == self.holder and self.event_id in (None, event_id)", "return holder == self.holder",
        "test_an_order_of_another_event_is_not_owned",
    ),
)  # fmt: skip
PAYMENTS = (
    Guard(
        "The provider is called after the call is written down",
        PURCHASE, '        order = await _write_attempt(run, order, attempt, status="unknown")\n', "        pass\n",
        "test_a_charge_is_written_down_as_unknown_before_the_provider_is_called",
    ),
    Guard(
        "A charge has one key, however often it is tried",
        PURCHASE, "        key=attempt.provider_key,\n", "        key=f\"{attempt.provider_key}:{attempt.errors}\",\n",
        "test_every_try_of_a_charge_has_the_key_of_its_attempt",
    ),
    Guard(
        "A failing payment is given up after some tries",
        PURCHASE, "    if errors > run.parts.tuning.payment_retries:", "    if False:",
        "test_a_charge_that_keeps_failing_is_retried_three_times_and_cancelled",
    ),
    Guard(
        "A charge that is not there after all is not taken for a failure",
        PURCHASE, "    if attempt.provider_key in statuses:\n        return\n", "",
        "test_a_charge_found_after_an_error_counts_as_no_error",
    ),
    Guard(
        "An authorisation that nobody needs is cancelled",
        PURCHASE, '        if charge.status == "authorised" and not is_live:', "        if False:",
        "test_an_authorisation_of_an_ended_attempt_is_cancelled",
    ),
    Guard(
        "A webhook that the provider did not sign changes nothing",
        "shared/payment_provider.py",
        "    if not any(hmac.compare_digest(mac.encode(), each.encode()) for mac in given for each in expected):", "    if False:",
        "test_only_recent_webhooks_signed_by_the_provider_are_accepted",
    ),
    Guard(
        "Stripe is not used without the secret of its webhooks",
        "features/stripe/provider.py", "    if not (key and secrets):", "    if not key:",
        "test_stripe_without_its_secrets_is_refused_at_the_start",
    ),
    Guard(
        "A signed webhook cannot be sent again later",
        "shared/payment_provider.py", "    if abs(now_s - at) > TOLERANCE_S:", "    if False:",
        "test_only_recent_webhooks_signed_by_the_provider_are_accepted",
    ),
    Guard(
        "A webhook's ids have a length",
        f"{ORDERS}/store/provider_reports.py", "if any(len(text) > TEXT_MAX_CHARS or", "if any(",
        "test_a_webhook_with_an_endless_id_is_refused",
    ),
    Guard(
        "A sale is confirmed after inventory sold its tickets",
        PURCHASE, '    if done.outcome == "done":\n        return await _mark_confirmed(run, order, payment)',
        "    if done:\n        return await _mark_confirmed(run, order, payment)",
        "test_an_order_whose_hold_was_taken_by_force_is_refunded",
    ),
    Guard(
        "Tickets that a stopped process sold are returned if the order ended",
        PURCHASE, 'if done.status == "confirmed" and done.order_reference == order.reference:', "if False:",
        "test_stock_sold_by_a_stopped_worker_is_returned_if_the_order_ended",
    ),
    Guard(
        "A refund is never more than what is left",
        RULES, "if not 0 < selection.amount_minor <= left:", "if False:",
        "test_a_refund_is_never_more_than_what_is_left",
    ),
    Guard(
        "A ticket is refunded once",
        RULES, "if line.seat_id == seat_id and line.remaining)", "if line.seat_id == seat_id)",
        "test_named_tickets_are_refunded_once_each",
    ),
    Guard(
        "Concurrent refunds see each other",
        f"{ORDERS}/store/store.py",
        "                woken = await wake_in(connection, [reference], owner=self.owner, sync=sync, take=take)\n                order = (await read_in(connection, [reference]))[reference]\n",
        "                order = (await read_in(connection, [reference]))[reference]\n                woken = await wake_in(connection, [reference], owner=self.owner, sync=sync, take=take)\n",
        "test_concurrent_refunds_never_exceed_the_charge",
    ),
    Guard(
        "A decision in review is one that the money allows",
        f"{SUPPORT}/endpoints.py", "    if decision not in (allowed := allowed_decisions(order)):", "    if (allowed := allowed_decisions(order)) is None:",
        "test_an_operator_refunds_a_charge_of_a_wrong_amount",
    ),
    Guard(
        "An event refund keeps its rate",
        f"{SUPPORT}/sql/claim_batch.sql", "least(CAST(:batch_max AS double precision),", "greatest(CAST(:batch_max AS double precision),",
        "test_an_event_refund_keeps_its_rate_and_resumes_in_another_process",
    ),
)  # fmt: skip
PRICES = (
    Guard(
        "The parts of an amount sum to it exactly",
        "shared/rules/currencies.py", "    for n in largest[: amount_minor - sum(parts)]:", "    for n in largest[:0]:",
        "test_parts_sum_to_the_whole_and_are_at_most_one_unit_off",
    ),
    Guard(
        "A discount never exceeds the price",
        f"{PROMO}/codes.py", "split(min(whole, sum(costs)), costs, step)", "split(whole, costs, step)",
        "test_a_fixed_discount_is_shared_by_price_and_ends_at_zero",
    ),
    Guard(
        "A discount covers its sections only",
        f"{PROMO}/codes.py", "return not self.section_ids or section_id in self.section_ids", "return True",
        "test_an_order_charges_exactly_its_quote",
    ),
    Guard(
        "A free ticket carries no fee",
        QUOTE, "* line.quantity if cost else 0 for", "* line.quantity for",
        "test_a_free_ticket_carries_no_fee",
    ),
    Guard(
        "A tax that is in the price is not added to it",
        QUOTE, "        if not tax.included:\n            paid", "        if True:\n            paid",
        "test_an_included_tax_is_part_of_the_price_and_an_added_tax_is_not",
    ),
    Guard(
        "No quote is made of what no provider can charge",
        QUOTE, "    if all(refused):", "    if False:",
        "test_a_discount_that_leaves_too_little_is_refused_in_the_quote",
    ),
    Guard(
        "A code is valid within its time",
        f"{PROMO}/sql/promo_codes.sql", "AND coalesce(clock_timestamp() < p.valid_until, true)", "",
        "test_a_code_is_valid_within_its_time_window_only",
    ),
    Guard(
        "A stopped code takes nothing off new orders",
        f"{PROMO}/sql/promo_codes.sql", "p.stopped_at IS NULL AND", "true AND",
        "test_a_stopped_code_keeps_its_discount_for_earlier_orders",
    ),
    Guard(
        "A code is used to its limit and no further",
        f"{PROMO}/codes.py", "        await connection.execute(_LOCK, bound)\n", "",
        "test_concurrent_orders_use_a_code_exactly_to_its_limit",
    ),
    Guard(
        "An order that ended unpaid gives its use of a code back",
        f"{PROMO}/sql/promo_codes.sql",
        "    WHERE p.uses_max IS NOT NULL\n    AND o.status NOT IN ('cancelled', 'expired')", "    WHERE p.uses_max IS NOT NULL",
        "test_an_order_that_ends_unpaid_releases_its_use_of_the_code",
    ),
    Guard(
        "Guessing a code tells nothing",
        f"{PROMO}/codes.py", "    if promo is None or not promo.is_active:", "    if promo is None:",
        "test_wrong_codes_get_equal_answers_and_only_the_guesser_is_limited",
    ),
    Guard(
        "Guesses are counted by the network address, too",
        f"{PROMO}/codes.py", "self._guesses_of_addresses.guess(reservation.event_id, address) as guess",
        "self._guesses_of_addresses.guess(reservation.event_id, None) as guess",
        "test_fans_at_one_network_address_share_a_limit_of_wrong_codes",
    ),
)  # fmt: skip
MESSAGES = (
    Guard(
        "Outgoing webhooks reach no private address",
        f"{WEBHOOKS}/dispatcher.py", "return address.is_global and not", "return not",
        "test_webhooks_reach_no_private_address",
    ),
    Guard(
        "An IPv4 address hidden in an IPv6 one is checked",
        f"{WEBHOOKS}/dispatcher.py", "    address = _unwrapped(ip_address(text))", "    address = ip_address(text)",
        "test_webhooks_reach_no_private_address",
    ),
    Guard(
        "A webhook goes to the address that was checked",
        f"{WEBHOOKS}/dispatcher.py", "str(url.copy_with(host=address))", "str(url)",
        "test_the_connection_goes_to_the_address_that_was_checked",
    ),
    Guard(
        "A webhook tells what was back at its version",
        f"{WEBHOOKS}/sql/queue_deliveries.sql", "coalesce(t.event #> '{after,returned}' -> (p.n::integer - 1), '0')", "coalesce(p.line -> 'returned', '0')",
        "test_a_webhook_that_is_made_late_tells_the_tickets_that_were_back_at_its_version",
    ),
    Guard(
        "A webhook has no name of a ticket",
        f"{WEBHOOKS}/sql/queue_deliveries.sql", "'$.tickets[*].id'", "'$.tickets[*]'",
        "test_no_webhook_has_a_name_of_a_ticket",
    ),
    Guard(
        "A webhook names a price type that the event file has no more",
        f"{WEBHOOKS}/sql/queue_deliveries.sql", "WHERE named ->> 'type_id' = y.type_id), y.type_id)))", "WHERE named ->> 'type_id' = y.type_id))))",
        "test_a_price_type_that_the_event_file_has_no_more_is_called_by_its_id",
    ),
    Guard(
        "Events that no endpoint wants cost one small read",
        f"{WEBHOOKS}/__init__.py", "webhooks.wake_if_queued", "webhooks.wake",
        "test_events_that_no_endpoint_wants_cause_no_look_for_deliveries",
    ),
    Guard(
        "An endpoint has an end",
        f"{WEBHOOKS}/endpoints.py", ">= ENDPOINTS_MAX:", "< 0:",
        "test_there_are_a_hundred_webhook_endpoints_at_most",
    ),
    Guard(
        "An inbox gets a limited number of unpaid mails a day",
        f"{MAIL}/sql/take_mail.sql", " WHERE r.mails < CAST(:mails_max AS integer)", " WHERE CAST(:mails_max AS integer) > 0",
        "test_the_count_is_exact_among_processes",
    ),
    Guard(
        "Reminders leave half of the day to one's own mails",
        f"{MAIL}/dispatcher.py", '(1 if budget == "own" else 2)', "1",
        "test_the_count_is_exact_among_processes",
    ),
    Guard(
        "An address is corrected three times at most",
        REQUESTS, " or order.address_changes >= CHANGES_MAX:", ":",
        "test_an_address_may_be_corrected_three_times_by_who_holds_the_order",
    ),
    Guard(
        "Each ticket has a name if the event asks for them",
        f"{ORDERS}/checkout/requests.py", "    if len(names) == wanted:", "    if True:",
        "test_names_that_do_not_fit_the_tickets_are_refused_and_nothing_is_changed",
    ),
    Guard(
        "A buyer changes no name after the time",
        NAMES, "            _require_in_time(order, show)\n", "",
        "test_buyers_change_names_until_the_time_and_operators_later_too",
    ),
    Guard(
        "A buyer changes three names for each ticket at most",
        NAMES, "    if order.name_changes + count > allowed:", "    if False:",
        "test_three_names_for_each_ticket_may_be_changed_and_concurrent_changes_are_counted",
    ),
    Guard(
        "A void ticket keeps its name",
        NAMES, " if ticket.is_valid}", "}", "test_a_void_ticket_keeps_its_name",
    ),
)  # fmt: skip
TYPES = (
    Guard(
        "A fee for a price type is borne by its tickets alone",
        QUOTE, "_fee_parts(fee, lines, _only(fee.types, type_ids, costs), step)", "_fee_parts(fee, lines, costs, step)",
        "test_fees_and_taxes_of_a_type_touch_the_tickets_of_this_type_alone",
    ),
    Guard(
        "A tax for a price type is on its tickets alone",
        QUOTE, "on = _only(tax.types, type_ids, taxable)", "on = taxable",
        "test_fees_and_taxes_of_a_type_touch_the_tickets_of_this_type_alone",
    ),
    Guard(
        "Included taxes share the net price of the tickets that they are on",
        QUOTE, "if tax.included and (not tax.types or type_id in tax.types))", "if tax.included)",
        "test_an_included_tax_is_exact_and_rounded_once_over_all_types",
    ),
    Guard(
        "A fee names a price type that the event has",
        "shared/contracts/event_file.py", "        self.require_types([each.type_id for each in self.price_types])\n", "",
        "test_fees_and_taxes_name_price_types_of_the_event",
    ),
    Guard(
        "No price of a type is applied that nobody can charge",
        QUOTE, "            for each in sold:\n", "            for each in sold[:0]:\n",
        "test_a_price_of_a_type_that_nobody_can_charge_is_refused_with_the_file",
    ),
    Guard(
        "A refund does not guess which price type is meant",
        RULES, "elif len(types := {line.type_id for line in left}) > 1:", "elif len(types := {line.type_id for line in left}) > 9:",
        "test_two_lines_of_a_section_are_told_apart",
    ),
    Guard(
        "A refund takes the tickets of its price type",
        RULES, "if order.price_types.shown(line.type_id) == type_id]", "if type_id]",
        "test_two_lines_of_a_section_are_told_apart",
    ),
    Guard(
        "A refund names no ticket twice by leaving out its type",
        "shared/contracts/admin/orders.py", "if any(some.type_id is None and sections[some.section_id] > 1 for some in self.ga):", "if False:",
        "test_a_section_named_twice_has_two_types",
    ),
    Guard(
        "Inventory takes back the price type that was sold",
        f"{ORDERS}/steps/refund.py", 'type_id=lines[t["line_no"]].type_id)', 'type_id="")',
        "test_the_tickets_of_one_type_are_refunded_and_returned",
    ),
    Guard(
        "A ticket's code says its price type",
        f"{ORDERS}/tickets/tickets.py", 'type_id=one.of_type.type_id if one.of_type else "",', "",
        "test_an_order_keeps_the_price_types_of_its_tickets",
    ),
    Guard(
        "A latest buyer counts with all tickets, of whatever types",
        "features/stock/inventory/sql/choose_latest_buyers.sql", "sum(p.n) AS n, r.confirmed_at", "max(p.n) - 3 AS n, r.confirmed_at",
        "test_a_latest_buyer_of_several_price_types_loses_all_tickets",
    ),
)  # fmt: skip
SETTLED = "features/reports/orders/settlement_types.py"
SETTLED_SQL = "features/reports/orders/sql/settlement_types.sql"
SETTLEMENT = (
    Guard(
        "The rows of a settlement by price type sum to its totals",
        SETTLED, "    if left_minor:\n", "    if False:\n",
        "test_the_rows_of_types_sum_to_the_totals",
    ),
    Guard(
        "The rows that a settlement does not list are summed in one",
        SETTLED, "others[currency][None].update(sum(sums.values(), Counter()))", "pass",
        "test_rows_are_limited_and_still_sum_to_the_totals",
    ),
    Guard(
        "A settlement reads each entry of the ledger once",
        SETTLED, "min(first_id + ENTRIES_PAGE - 1, ids[1])", "min(first_id + ENTRIES_PAGE, ids[1])",
        "test_rows_are_limited_and_still_sum_to_the_totals",
    ),
    Guard(
        "A price type is not refunded more than was refunded",
        SETTLED, "if sum(worths) > amount_minor:", "if False:",
        "test_no_type_has_more_than_its_tickets_are_worth_and_nothing_is_lost",
    ),
    Guard(
        "A refund is settled by the tickets that its own request names",
        SETTLED_SQL, " AND b.id < e.id)", " AND false)",
        "test_refunds_of_the_same_amount_are_told_apart_by_their_requests",
    ),
    Guard(
        "A refund made at the provider is settled by none of our requests",
        SETTLED_SQL, " AND starts_with(r.idem_key, 'outside:') = e.is_outside", "",
        "test_a_refund_outside_is_told_apart_from_one_of_the_same_amount",
    ),
    Guard(
        "A second charge of an order sells no ticket twice",
        SETTLED_SQL, " AND m.charge_ref = o.charge_ref", "",
        "test_the_rest_of_an_order_is_divided_in_proportion_and_a_second_charge_sells_nothing",
    ),
    Guard(
        "Tickets of a refund that was refused are settled as sold",
        SETTLED_SQL, "\n                    AND NOT (r.status = 'refused' AND r.done_at < request.created_at)", "",
        "test_tickets_of_a_line_are_divided_as_they_were_refunded",
    ),
)  # fmt: skip
GUARDS = (*DECISIONS, *WRITES, *CHECKOUTS, *PAYMENTS, *PRICES, *TYPES, *MESSAGES, *SETTLEMENT)
