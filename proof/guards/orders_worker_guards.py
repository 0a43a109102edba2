"""The guards of the worker of orders: who owns an order, who may charge for it, and what is kept in memory."""

from proof.guards.guard import Guard

ORDERS = "services/orders"
CHECKOUT = f"{ORDERS}/checkout/checkout.py"
SAVE = f"{ORDERS}/store/sql/save.sql"
RUN = f"{ORDERS}/steps/run.py"
WORKER = f"{ORDERS}/worker/worker.py"
COMPARED = f"{ORDERS}/store/sql/differing_charges.sql"
OWNERSHIP = (
    Guard(
        "A process that lost an order writes nothing",
        SAVE, "p.owner = a.owner AND p.epoch = a.epoch AND p.wakes", "p.wakes",
        "test_what_a_process_writes_after_it_lost_an_order_is_refused",
    ),
    Guard(
        "Nor does a run from before it had the order back",
        SAVE, " AND p.epoch = a.epoch", "",
        "test_what_a_process_writes_after_it_lost_an_order_is_refused",
    ),
    Guard(
        "Nothing is written over what was asked of an order meanwhile",
        SAVE, " AND p.wakes = a.wakes", "",
        "test_an_update_of_an_order_that_was_asked_for_something_since_is_refused",
    ),
    Guard(
        "An order that is opened again is not taken for the one that it was",
        f"{ORDERS}/store/sql/wake.sql", "(random() * 1000000000)::integer", "0",
        "test_a_run_from_before_an_order_was_closed_writes_nothing_into_its_next_life",
    ),
    Guard(
        "An order of a silent process is taken over by one other",
        f"{ORDERS}/store/sql/take_over.sql", "\n    FOR UPDATE SKIP LOCKED", "",
        "test_an_order_of_a_silent_process_is_taken_over_by_one_other",
    ),
    Guard(
        "A process keeps its orders while it is alive",
        f"{ORDERS}/store/sql/take_over.sql",
        " AND NOT EXISTS (\n        SELECT FROM orders.process a\n        WHERE a.owner = p.owner AND a.beat_at > clock_timestamp() - make_interval(secs => :takeover_s))",
        "",
        "test_a_process_that_beats_again_before_it_is_taken_over_keeps_its_orders",
    ),
    Guard(
        "A process that was silent charges nobody",
        f"{ORDERS}/steps/run.py", "        if not self._heartbeat.may_call:", "        if False:",
        "test_nothing_is_sent_to_a_provider_without_a_fresh_heartbeat",
    ),
    Guard(
        "A process is told that another has its order now",
        f"{ORDERS}/store/store.py", "await self.tell(woken, taken=take)", "await self.tell(woken)",
        "test_what_is_asked_of_an_order_elsewhere_reaches_its_process_at_once",
    ),
    Guard(
        "An order that was woken while it was worked on is due again",
        WORKER, "            if held.woken and not self._is_stopping:", "            if False:",
        "test_an_order_asked_for_something_while_it_is_in_work_is_processed_again",
    ),
    Guard(
        "No event takes all workers",
        WORKER, "            self._ready.move_to_end(event_id)\n", "",
        "test_events_take_turns_and_of_each_the_lowest_number_in_line_is_first",
    ),
    Guard(
        "Who joined first is served first",
        WORKER, "(one.join_seq, one.reference)", "(-one.join_seq, one.reference)",
        "test_events_take_turns_and_of_each_the_lowest_number_in_line_is_first",
    ),
    Guard(
        "A run from before a silence of its process charges nobody",
        RUN, "return self.is_fresh and _began_in.get() in (None, self.life)", "return self.is_fresh",
        "test_a_run_from_before_a_silence_charges_nobody_though_its_process_is_heard_again",
    ),
    Guard(
        "A beat counts from before it was sent",
        RUN, "self._beat_s = max(begun_s, self._beat_s or begun_s)", "self._beat_s = self._clock()",
        "test_a_beat_counts_from_before_it_was_sent",
    ),
    Guard(
        "An order is read before it is worked on after a silence",
        WORKER, "if self._heartbeat.life != life:", "if False:",
        "test_an_order_that_is_begun_after_a_silence_is_read_first",
    ),
    Guard(
        "An order that is written is its process' own at once",
        CHECKOUT, "        await self._worker.require_alive()\n", "",
        "test_an_order_is_written_by_a_process_that_others_see_alive",
    ),
    Guard(
        "An order that a process has back is worked on as it owns it now",
        WORKER, "if held is None or held.open_order.epoch != open_order.epoch:", "if held is None:",
        "test_an_order_that_is_ours_again_is_processed_as_we_own_it_now",
    ),
    Guard(
        "A process with orders says often enough that it is alive",
        WORKER, "self._tuning.takeover_s / 2.5 if self._held else QUIET_S", "QUIET_S",
        "test_sweeps_become_rarer_until_something_comes_in_and_a_process_with_orders_keeps_beating",
    ),
    Guard(
        "An order whose writer never had the answer is worked on",
        CHECKOUT, "            self._worker.doubt()\n", "            pass\n",
        "test_a_retry_after_a_lost_commit_response_makes_no_second_order",
    ),
    Guard(
        "What is asked of an order is done although nobody was told",
        WORKER, "        if found.woken:\n", "        if False:\n",
        "test_a_lost_notification_is_found_by_a_sweep",
    ),
    Guard(
        "A process that is behind gives orders away",
        WORKER, "        await self._give_to_others(int(found.free_elsewhere))\n", "",
        "test_a_process_that_is_behind_gives_its_next_orders_to_one_with_free_workers",
    ),
    Guard(
        "A process gives away no more orders than others have workers for",
        WORKER, "while len(given) < free and", "while",
        "test_a_process_that_is_behind_gives_its_next_orders_to_one_with_free_workers",
    ),
    Guard(
        "A process that stops leaves its orders to others at once",
        WORKER, 'await connection.execute(_GIVE_UP, {"owner": self.owner, "all": True, "references": []})', "pass",
        "test_a_process_that_stops_finishes_what_is_in_work_and_leaves_the_rest_to_others",
    ),
    Guard(
        "A process that stops takes over no orders",
        WORKER, "if found.dead and not self._is_stopping:", "if found.dead:",
        "test_a_process_that_stops_finishes_what_is_in_work_and_leaves_the_rest_to_others",
    ),
    Guard(
        "Tickets of a sale that another process made are not returned",
        f"{ORDERS}/steps/purchase.py", "        await run.save(run.update(order, bumps_version=False))\n", "",
        "test_a_sale_stays_that_another_process_made_while_this_one_was_silent",
    ),
    Guard(
        "A charge that may have been sent is not taken for never sent",
        f"{ORDERS}/steps/purchase.py", "never_sent = isinstance(failed, NotSent) and is_first", "never_sent = isinstance(failed, NotSent)",
        "test_a_worker_stopped_at_a_failpoint_does_not_change_the_end_of_a_story",
    ),
    Guard(
        "A charge is tried no longer than its hold lasts",
        WORKER,
        "            pause_s = min(pause_s, (order.expires_at_ms - order.now_ms) / 1000)\n", "            pass\n",
        "test_a_charge_is_retried_until_the_hold_ends_and_the_order_expires_unless_it_may_be_charged",
    ),
    Guard(
        "A process that stops finishes what is in work",
        WORKER, "_, late = await asyncio.wait(tasks, timeout=self._tuning.handover_s)", "late = tasks",
        "test_a_process_that_stops_finishes_what_is_in_work_and_leaves_the_rest_to_others",
    ),
    Guard(
        "A fan pays again until the announced time, although the database's clock is ahead",
        f"{ORDERS}/store/store.py", "await decide(connection, self._on_slowest_clock(order))", "await decide(connection, order)",
        "test_an_order_lasts_until_its_announced_deadline_although_a_clock_steps",
    ),
    Guard(
        "A fan whose order no worker begins within a second does not wait for one",
        WORKER, "                WORKERS_IN_TIME.set(0)\n", '                return "overflow"\n',
        "test_an_order_that_no_worker_begins_in_time_is_processed_in_its_request",
    ),
    Guard(
        "Orders that requests begin themselves are limited",
        WORKER, "if held is None or (held.task is None and held.is_ready and self._free_slots <= 0):", "if held is None:",
        "test_a_request_waits_a_bounded_time_and_orders_beyond_the_slots_go_to_the_background",
    ),
    Guard(
        "The hold of an order that was written is not given to another",
        CHECKOUT, "and await write_tombstone(self.store.db, other):", "and (await write_tombstone(self.store.db, other) or True):",
        "test_a_hold_of_an_existing_order_is_not_taken_over",
    ),
    Guard(
        "A repeat that comes too late to be told so is the same order all the same",
        CHECKOUT, "            if (known := await self._replay(wanted, owner_ids)) is not None:\n                return known\n            raise\n        await",
        "            raise\n        await",
        "test_a_request_whose_key_has_bought_its_hold_since_it_was_looked_up_is_replayed",
    ),
)  # fmt: skip
MEMORY = (
    Guard(
        "A poll is answered from memory only by the owner of the order",
        WORKER, "if not (self._hears and self._heartbeat.is_fresh):", "if False:",
        "test_a_process_that_is_silent_or_deaf_asks_the_database",
    ),
    Guard(
        "What was read before a request is not answered after it",
        WORKER, "held.woken or order is None", "order is None",
        "test_an_answer_that_was_read_before_a_request_is_not_kept_after_it",
    ),
    Guard(
        "A poll shows what was asked of the order",
        WORKER, "        self._store.latest.pop(open_order.reference, None)\n", "",
        "test_what_was_asked_of_an_order_is_seen_in_its_next_poll",
    ),
    Guard(
        "A process that was deaf does not answer from what it knew",
        WORKER, "            self._store.latest.clear()  # what was asked until now was not heard\n", "",
        "test_what_was_known_while_a_process_was_deaf_is_forgotten_once_it_hears",
    ),
)  # fmt: skip
COMPARISON = (
    Guard(
        "Money of an order that no webhook told of is found",
        COMPARED, "ours.refunded_minor IS NULL\n    OR ", "false\n    OR ",
        "test_money_of_an_order_that_nobody_noticed_is_found",
    ),
    Guard(
        "A refund at the provider that no webhook told of is found",
        COMPARED, "    OR t.refunded_minor <> ours.refunded_minor\n", "",
        "test_what_a_lost_webhook_told_nobody_is_found_in_any_page",
    ),
    Guard(
        "A dispute that was lost without a webhook is found",
        COMPARED, "\n    OR t.dispute ->> 'status' IS DISTINCT FROM ours.dispute END", " END",
        "test_a_lost_dispute_that_no_webhook_told_of_is_found",
    ),
    Guard(
        "An authorisation that nobody needs any more is found",
        COMPARED, "THEN t.status = 'authorised' ELSE", "THEN false ELSE",
        "test_an_authorisation_that_nobody_cancelled_or_captured_is_found",
    ),
    Guard(
        "One process at a time asks the provider for its charges",
        f"{ORDERS}/store/sql/begin_comparison.sql", "\nWHERE c.taken_until < clock_timestamp()", "",
        "test_two_processes_at_once_compare_once",
    ),
    Guard(
        "What the provider did not answer counts as compared by nobody",
        f"{ORDERS}/store/provider_reports.py", "            return []  # in a minute\n", "            charges = []\n",
        "test_a_comparison_that_the_provider_did_not_answer_is_made_again_in_a_minute",
    ),
)  # fmt: skip
GUARDS = (*OWNERSHIP, *MEMORY, *COMPARISON)
