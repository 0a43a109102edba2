"""The guards of inventory."""

from proof.guards.guard import Guard

HOLD = "services/inventory/redis_stock/lua/hold.lua"
LUA = "services/inventory/redis_stock/lua"
FOLLOW = f"{LUA}/follow.lua"
SQL = "services/inventory/reservations/sql"
PAYMENT = "services/inventory/reservations/payment.py"
FIRST = "services/inventory/migrations/versions/0001_first.sql"
REDIS = (
    Guard(
        "Redis grants no seat that is held, sold or blocked",
        HOLD, "if found ~= string.rep('.', run[3]) then", "if false then",
        "test_a_selection_is_held_whole_or_not_at_all",
    ),
    Guard(
        "Where an event refuses it nobody leaves a seat alone while there is a better choice",
        HOLD, "request.single_seats.refuse then", "false then",
        "test_two_fans_side_by_side_never_leave_a_seat_alone_together",
    ),
    Guard(
        "Redis grants no more general admission than is left",
        HOLD, "if left < ticket[2] then", "if false then",
        "test_a_selection_is_held_whole_or_not_at_all",
    ),
    Guard(
        "Nobody holds more tickets than one customer may",
        HOLD, "had + quantity > request.tickets_max", "false",
        "test_a_refusal_names_the_exceeded_limit",
    ),
    Guard(
        "Nobody has more reservations at a time than one customer may",
        HOLD, "if #live >= request.live_max then", "if false then",
        "test_a_refusal_names_the_exceeded_limit",
    ),
    Guard(
        "A repeated reservation is the same one",
        HOLD, "  if before then return before end\n", "",
        "test_a_repeated_hold_changes_nothing_and_another_selection_is_refused",
    ),
    Guard(
        "A key is not used again for other places",
        HOLD, "same.stock ~= request.stock_hash", "false",
        "test_a_repeated_hold_changes_nothing_and_another_selection_is_refused",
    ),
    Guard(
        "Another fan's key finds nobody's reservation",
        HOLD, "same.holder ~= request.holder", "false",
        "test_a_hold_of_another_holder_is_not_repeated",
    ),
    Guard(
        "A released pass holds nothing",
        HOLD, "redis.call('ZSCORE', keys.revoked, request.jti)", "false",
        "test_a_pass_is_revoked_only_while_its_holder_holds_nothing",
    ),
    Guard(
        "A pass of before a reset holds nothing, whatever a process remembers",
        HOLD, "(request.pass_epoch or 0) < min_pass_epoch", "false",
        "test_redis_refuses_a_pass_that_a_process_with_an_old_catalogue_accepts",
    ),
    Guard(
        "Nothing is granted from a stock that lost a key",
        HOLD, "ready = ready and all_exist(", "ready = ready or all_exist(",
        "test_a_closed_redis_stock_holds_nothing",
    ),
    Guard(
        "Nothing is sold while a clock is more than a minute off",
        HOLD, "if math.abs(ahead_ms) > APART_MS then", "if false then",
        "test_one_clock_more_than_a_minute_off_pauses_the_sale_until_it_is_right",
    ),
    Guard(
        "Deadlines never go back with a clock that was set back",
        f"{LUA}/prelude.lua", "if last > now and last - now <= APART_MS then return last, now end", "",
        "test_a_clock_set_back_lowers_no_new_deadline",
    ),
    Guard(
        "A stock with a lost key is closed, and not read as free",
        f"{LUA}/prelude.lua", "if redis.call('EXISTS', ...) == select('#', ...) then return true end",
        "if true then return true end",
        "test_no_script_recreates_a_lost_key_or_ignores_its_loss",
    ),
    Guard(
        "A lost map of seats is not read as free",
        f"{LUA}/prelude.lua", "if #found < run[3] then mark_lost(keys.meta) end", "",
        "test_requests_after_a_lost_key_are_answered_correctly_or_with_503",
    ),
    Guard(
        "Wheelchair and companion places are offered to nobody who did not ask",
        "services/inventory/layout/offers.py", "never.append(self._with(ACCESSIBLE))", "never.append({})",
        "test_places_with_traits_are_offered_when_no_others_are_left_and_wheelchair_places_to_nobody",
    ),
    Guard(
        "Places that others may buy are never offered",
        "services/inventory/layout/offers.py", "if not each.is_open_to(fan))", "if False)",
        "test_places_of_others_are_never_offered_and_what_a_right_sees_is_made_once",
    ),
    Guard(
        "A companion sits next to each wheelchair place",
        f"{LUA}/accessible.lua", " or has.near + has.next_to < pairs_wanted", "",
        "test_redis_picks_places_as_good_as_an_exhaustive_search",
    ),
    Guard(
        "Two wheelchair places do not share one companion place",
        f"{LUA}/accessible.lua", " and not used[next_at]", "",
        "test_redis_picks_places_as_good_as_an_exhaustive_search",
    ),
    Guard(
        "A release that is repeated frees nothing twice",
        FOLLOW, "  live[r.id] = nil\n", "",
        "test_repeated_releases_and_confirmations_change_nothing",
    ),
    Guard(
        "A bought ticket goes on counting against the customer's limit",
        FOLLOW, "  if mark == '.' then\n    add_tickets", "  if true then\n    add_tickets",
        "test_repeated_releases_and_confirmations_change_nothing",
    ),
    Guard(
        "A late release frees no seat that an operator blocked",
        f"{LUA}/prelude.lua", "string.gsub(marks(run), '[' .. from .. ']', to)",
        "string.gsub(marks(run), '[hsx.]', to)",
        "test_a_late_release_in_redis_does_not_free_a_blocked_seat",
    ),
    Guard(
        "A reservation that is being paid has no deadline in Redis",
        FOLLOW, "    untimed[#untimed + 1] = r.id\n", "",
        "test_a_payment_removes_the_deadline_and_its_end_restores_it",
    ),
    Guard(
        "A late payment's seats are sold once, however often the step is repeated",
        FOLLOW, "  if r.v > 0 then ended_now[r.id] = text(r.v) .. r.now end\n", "",
        "test_a_repeated_reacquisition_sells_once_and_overrules_a_newer_hold",
    ),
    Guard(
        "Returned tickets go on sale once, however often the step is repeated",
        FOLLOW, "if r.v == 0 or known and known >= r.v then return end", "if r.v == 0 then return end",
        "test_redis_applies_a_repeated_return_once",
    ),
    Guard(
        "A return of before a rebuild is not applied a second time",
        FOLLOW, "if epoch ~= '0' and found[2] ~= epoch then return 'superseded' end", "",
        "test_a_return_from_before_a_rebuild_is_not_applied_to_the_rebuilt_stock",
    ),
    Guard(
        "A change of stock that comes late overrules no newer one",
        FOLLOW, "if tonumber(found[3] or 0) > version then return 'stale' end", "",
        "test_updates_of_redis_out_of_order_end_in_the_right_state",
    ),
    Guard(
        "A part that was kept is never larger again by a late call",
        FOLLOW, "elseif (hold.v or 0) > r.v then", "elseif false then",
        "test_a_late_update_of_redis_changes_nothing",
    ),
    Guard(
        "A fan with a live reservation keeps the pass",
        f"{LUA}/revoke.lua", "if until_ms then return {'live', text(until_ms)} end", "",
        "test_a_pass_is_revoked_only_while_its_holder_holds_nothing",
    ),
    Guard(
        "The lowest valid epoch of passes never falls",
        f"{LUA}/set_min_pass_epoch.lua",
        "if tonumber(redis.call('HGET', keys.meta, 'min_pass_epoch') or 0) < tonumber(ARGV[1]) then", "if true then",
        "test_the_minimum_epoch_in_redis_never_falls",
    ),
    Guard(
        "Of two rebuilds the newer one stands",
        f"{LUA}/rebuild_begin.lua",
        "if tonumber(redis.call('HGET', keys.meta, 'epoch') or 0) > epoch then return 'superseded' end", "",
        "test_a_rebuild_with_an_older_epoch_is_refused",
    ),
    Guard(
        "A rebuild that was overtaken does not open the stock",
        f"{LUA}/finish_rebuild.lua", "~= ARGV[1] then return 'superseded' end", "~= ARGV[1] then return 'done' end",
        "test_a_rebuild_with_an_older_epoch_is_refused",
    ),
    Guard(
        "A hold that a rebuild brings ends at its deadline, though no loop had seen it",
        "services/inventory/redis_stock/rebuild.py",
        '            wake("inventory")  # its holds have deadlines that no loop has seen\n', "",
        "test_a_rebuild_wakes_the_loop_that_ends_its_holds",
    ),
    Guard(
        "A stock that lost a key during its rebuild stays closed",
        f"{LUA}/finish_rebuild.lua", "if not all_exist(keys.meta, unpack(KEYS, 2)) then return 'lost' end", "",
        "test_a_key_lost_during_a_rebuild_keeps_the_redis_stock_closed",
    ),
    Guard(
        "A correction overwrites no seat that changed since it was read",
        FOLLOW, "set_seats((parse(p.seats)), p.from, p.to)", "set_seats((parse(p.seats)), '.hsx', p.to)",
        "test_corrections_follow_the_database",
    ),
    Guard(
        "What PostgreSQL has left is never raised by a refused hold",
        FOLLOW, "math.min(available, p.left or available)", "p.left or available",
        "test_what_is_left_after_a_refused_hold_lowers_what_is_available_and_never_raises_it",
    ),
    Guard(
        "A hold that ended is not restored by a comparison that was made before",
        FOLLOW, "or (not rebuild and ended_as(r.id))", "or false",
        "test_a_hold_that_redis_lost_is_restored_unless_it_has_ended_meanwhile",
    ),
    Guard(
        "What has ended is remembered for longer than any call is under way",
        FOLLOW, " or redis.call('HGET', keys.gone_before, id)", "",
        "test_what_has_ended_is_remembered_for_minutes_and_then_forgotten",
    ),
    Guard(
        "A late refusal drops no hold that is being paid",
        FOLLOW, "if hold.v and hold.v >= r.v then return end", "",
        "test_a_refusal_drops_no_hold_that_has_changed_since_it_was_written",
    ),
    Guard(
        "The late word that a hold was written gives no deadline back to one that is being paid",
        FOLLOW, "elseif raw and not string.find(raw, '\"v\":', 1, true) then", "elseif raw then",
        "test_a_late_confirmation_of_the_write_neither_lowers_nor_restores_a_deadline",
    ),
    Guard(
        "A return that a newer one overtook is looked for",
        FOLLOW, "late = late or r.returned and known and known > r.v\n", "",
        "test_of_two_returns_in_the_wrong_order_redis_looks_for_the_first",
    ),
)  # fmt: skip
DATABASE = (
    Guard(
        "PostgreSQL writes no hold of a seat that is taken, whatever Redis granted",
        "services/inventory/store/sql/insert_holds.sql", "AND s.status = 'available'", "",
        "test_one_refused_member_does_not_fail_the_others",
    ),
    Guard(
        "PostgreSQL writes no hold beyond the places left, whatever Redis granted",
        "services/inventory/store/sql/insert_holds.sql", " AND s.seats_remaining >= wanted.quantity",
        "",
        "test_one_refused_member_does_not_fail_the_others",
    ),
    Guard(
        "A hold is written once, however many processes try",
        "services/inventory/store/sql/insert_holds.sql", "    ON CONFLICT DO NOTHING\n    RETURNING reservation_id",
        "    ON CONFLICT (event_id, reservation_id) DO UPDATE SET version = 1\n    RETURNING reservation_id",
        "test_concurrent_writes_of_one_id_succeed_once",
    ),
    Guard(
        "A hold that Redis granted before its rebuild is not written",
        "services/inventory/store/reservations.py", 'if row["redis_epoch"] != epoch:', "if False:",
        "test_a_batch_of_the_epoch_before_a_rebuild_is_refused",
    ),
    Guard(
        "A hold whose seats PostgreSQL did not give is refused",
        "services/inventory/store/reservations.py",
        'if (row["sections"], row["seats"]) != (len(sections), len(seats)):', "if False:",
        "test_one_refused_member_does_not_fail_the_others",
    ),
    Guard(
        "One bad hold of a batch costs the others nothing",
        "services/inventory/store/reservations.py",
        '"RELEASE SAVEPOINT member" if outcome == "written" else "ROLLBACK TO SAVEPOINT member"',
        '"RELEASE SAVEPOINT member"',
        "test_one_refused_member_does_not_fail_the_others",
    ),
    Guard(
        "A hold that was never written cannot be written late",
        f"{SQL}/insert_tombstones.sql", "WHERE e.event_id = :event_id\n", "WHERE false AND e.event_id = :event_id\n",
        "test_a_tombstone_stops_the_late_write_of_a_paused_process",
    ),
    Guard(
        "No hold ends before its time, whatever Redis says",
        f"{SQL}/end_unpaid.sql",
        "OR locked.reserved_until_ms + 1000 * (SELECT e.grace_s FROM inventory.event e WHERE e.event_id = :event_id)\n"
        "          < least(",
        "OR 0 < least(",
        "test_the_sweep_checks_the_database_before_it_releases_a_due_hold",
    ),
    Guard(
        "A fan who is paying is not released",
        f"{SQL}/end_unpaid.sql", " AND locked.status = 'pending_payment'", " AND locked.status IN ('pending_payment', 'paying')",
        "test_the_statements_themselves_keep_a_hold_in_payment",
    ),
    Guard(
        "A hold is extended once",
        f"{SQL}/extend.sql", " AND NOT mine.extended", "",
        "test_one_of_five_concurrent_extensions_succeeds",
    ),
    Guard(
        "An extension never shortens a hold",
        f"{SQL}/extend.sql", "greatest(r.reserved_until_ms, CAST(:now_ms AS bigint) + 1000 * mine.hold_ttl_s)",
        "CAST(:now_ms AS bigint) + 1000 * mine.hold_ttl_s",
        "test_a_clock_set_back_shortens_no_extension_and_no_payment",
    ),
    Guard(
        "A seat that was taken meanwhile is not sold to a late payment",
        f"{SQL}/reacquire_seats.sql", "\n  AND s.status = 'available'", "",
        "test_a_late_payment_never_takes_stock_of_another_holder",
    ),
    Guard(
        "A released hold frees only its own seats",
        f"{SQL}/release_stock.sql",
        "FROM inventory.seat s JOIN seats USING (event_id, section_id, position, reservation_id)",
        "FROM inventory.seat s JOIN seats USING (event_id, section_id, position)",
        "test_a_release_frees_no_seat_of_another_holder",
    ),
    Guard(
        "Tickets of a sale are returned once",
        PAYMENT, 'RETURN = Transition("returned", RETURNED,', 'RETURN = Transition("returned", frozenset(),',
        "test_repeated_returns_release_the_sale_or_the_named_tickets_once",
    ),
    Guard(
        "Blocking takes no more places than are left",
        "features/stock/inventory/sql/block_places.sql", "s.seats_remaining >= locked.n AND ", "",
        "test_ga_tickets_are_blocked_by_quantity",
    ),
    Guard(
        "A repair overwrites no section that changed since it was counted",
        "services/inventory/store/sql/repair_sections.sql", " AND s.version = counted.seen_version", "",
        "test_a_row_that_changed_since_it_was_counted_is_not_overwritten",
    ),
    Guard(
        "An oversell is decided once",
        FIRST, "CREATE UNIQUE INDEX uq_oversell_open", "CREATE INDEX uq_oversell_open",
        "test_the_database_itself_refuses_what_would_oversell",
    ),
    Guard(
        "Cancelling more buyers than the event allows needs an admin",
        "features/stock/inventory/oversell.py",
        'return "waiting" if percent > policy["review_percent"] else "cancelling"', 'return "cancelling"',
        "test_a_cancellation_above_the_limit_needs_the_approval_of_an_admin",
    ),
    Guard(
        "No section has less than nothing left, whatever statement is wrong",
        FIRST, "    CONSTRAINT ck_section_never_oversold CHECK (seats_remaining >= 0),\n", "",
        "test_the_database_itself_refuses_what_would_oversell",
    ),
    Guard(
        "No section has more left than there is, whatever statement is wrong",
        FIRST, "    CONSTRAINT ck_section_never_more_than_there_is CHECK (seats_remaining <= capacity),\n", "",
        "test_the_database_itself_refuses_what_would_oversell",
    ),
    Guard(
        "A seat is not sold without its owner",
        FIRST, "    CONSTRAINT ck_seat_owned_while_held_or_sold CHECK ((status IN ('held', 'sold')) = (reservation_id IS NOT NULL)),\n", "",
        "test_the_database_itself_refuses_what_would_oversell",
    ),
    Guard(
        "A hold is sold or released, not both",
        "services/inventory/store/sql/lock_reservations.sql", "    FOR UPDATE OF r\n", "",
        "test_one_of_a_concurrent_sale_and_release_succeeds",
    ),
    Guard(
        "A hold is released once, however many release it",
        f"{SQL}/end_unpaid.sql", " AND locked.status = 'pending_payment'", "",
        "test_concurrent_cancellations_release_a_hold_once",
    ),
    Guard(
        "Payments of one customer at two events of a tour see each other",
        f"{SQL}/begin.sql", "other.tour_id = e.tour_id", "false",
        "test_concurrent_payments_at_two_events_of_a_tour_share_one_limit",
    ),
)  # fmt: skip
SERVICE = (
    Guard(
        "Only the order that began a payment continues it",
        PAYMENT, "is_owner = record.order_reference == step.order_reference", "is_owner = True",
        "test_only_the_order_that_began_a_payment_can_continue_it",
    ),
    Guard(
        "No payment begins after the hold's time",
        f"{SQL}/begin.sql", "WHEN f.now_ms > f.reserved_until_ms + 1000 * f.grace_s THEN 'ended'\n", "\n",
        "test_a_payment_begins_within_the_hold_and_its_grace_only",
    ),
    Guard(
        "The time to pay is given once",
        f"{SQL}/begin.sql", "CASE WHEN f.payment_extended THEN f.reserved_until_ms\n", "CASE WHEN false THEN 0\n",
        "test_the_payment_time_is_granted_once",
    ),
    Guard(
        "A payment that is taken back leaves the hold's own deadline",
        PAYMENT, "                record.reserved_until_ms = step.binding.unpaid_until_ms\n", "",
        "test_a_request_takes_back_the_payment_that_it_began_and_the_hold_is_as_before",
    ),
    Guard(
        "A request takes back no payment that another request of the order has begun since",
        PAYMENT, "            if record.version != step.binding.version:", "            if False:",
        "test_a_request_takes_no_payment_back_that_its_order_has_begun_again",
    ),
    Guard(
        "A repeat of a payment's begin is told apart from the first",
        f"{SQL}/begin.sql", "SET version = r.version + 1\n    FROM decided d\n", "SET version = r.version\n    FROM decided d\n",
        "test_a_request_takes_no_payment_back_that_its_order_has_begun_again",
    ),
    Guard(
        "No customer buys more than the event allows, over all browsers",
        f"{SQL}/begin.sql", "f.tickets_used + f.quantity > f.tickets_per_customer", "false",
        "test_twenty_holders_of_one_customer_pay_for_six_tickets",
    ),
    Guard(
        "No customer buys more than a tour allows, over all its events",
        f"{SQL}/begin.sql", "f.tour_used + f.quantity > f.tour_tickets_per_customer", "false",
        "test_concurrent_payments_at_two_events_of_a_tour_share_one_limit",
    ),
    Guard(
        "A late payment gets all of its places or none",
        PAYMENT, 'await savepoint.rollback()\n        return "taken"', 'await savepoint.commit()\n        return "taken"',
        "test_a_late_payment_never_takes_stock_of_another_holder",
    ),
    Guard(
        "Only the order of a sale returns its tickets",
        "services/inventory/reservations/returns.py",
        "if record.order_reference != request.order_reference:", "if False:",
        "test_only_the_order_of_a_sale_can_return_it",
    ),
    Guard(
        "Named tickets are returned once",
        "services/inventory/reservations/returns.py",
        "if await _is_done(connection, record.event_id, request.return_id):", "if False:",
        "test_repeated_returns_release_the_sale_or_the_named_tickets_once",
    ),
    Guard(
        "A return names tickets that the sale has, each once",
        "services/inventory/reservations/returns.py",
        "if not each_once or not (request.seats or request.ga) or not set(request.seats) <= seats.keys():", "if False:",
        "test_a_return_is_refused_whole_if_one_ticket_cannot_be_returned",
    ),
    Guard(
        "A part cannot be released once an order pays for the whole",
        "services/inventory/reservations/partial_release.py",
        'if record.status == "paying" or (record.is_live and record.order_reference):', "if False:",
        "test_a_payment_answers_the_tickets_that_it_begins_for",
    ),
    Guard(
        "Only what is held can be kept",
        "services/inventory/reservations/partial_release.py",
        "if missing := sorted((seats - {line.seat_id for line in held.seats}) | too_many):",
        "if missing := list[str]():",
        "test_a_request_for_stock_that_is_not_held_is_refused_and_changes_nothing",
    ),
    Guard(
        "Nobody reads, extends or releases somebody else's reservation",
        "services/inventory/auth.py", "if owner.holder != holder:", "if False:",
        "test_a_reservation_of_another_fan_is_not_found",
    ),
    Guard(
        "An expired pass opens a live hold only",
        "services/inventory/auth.py", "if now_s > max(owner.expires_at_s, until_ms / 1000):", "if False:",
        "test_an_expired_pass_still_opens_its_live_reservation",
    ),
    Guard(
        "A credential opens its own event only",
        "services/inventory/auth.py", "if credential.event_id != event_id:", "if False:",
        "test_each_wrong_credential_has_its_problem",
    ),
    Guard(
        "A pass of before a reset reads no seats",
        "services/inventory/auth.py", "if admission.epoch < layout.min_pass_epoch:", "if False:",
        "test_passes_below_the_minimum_epoch_hold_nothing",
    ),
    Guard(
        "A waiting fan asks the queue once a second, however often the page asks",
        "services/inventory/auth.py", "claimed = self._cache.get(key)", "claimed = None",
        "test_a_waiting_fan_is_refused_with_one_queue_request_a_second",
    ),
    Guard(
        "Nobody holds more tickets than an order may have",
        "services/inventory/api/reservations.py", "if quantity > allowed:", "if False:",
        "test_an_order_has_no_more_tickets_than_the_event_and_the_pass_allow",
    ),
    Guard(
        "A fan who gives holds back again and again must wait",
        "services/inventory/api/reservations.py", "if wait_s > 0:", "if False:",
        "test_a_fan_who_releases_repeatedly_must_wait",
    ),
    Guard(
        "One address holds a limited number of reservations",
        "shared/security/limits.py", "            if len(live) >= self._most:\n", "            if False:\n",
        "test_a_refused_request_does_not_uncount_another_one_for_the_same_hold",
    ),
    Guard(
        "A key is bound to its holder",
        "services/inventory/api/reservations.py", '"\\0".join((event_id, holder, key))', '"\\0".join((event_id, key))',
        "test_two_fans_with_one_key_have_two_reservations",
    ),
    Guard(
        "A reservation's id cannot be guessed",
        "services/inventory/api/reservations.py", "pool = os.urandom(10 * 256).hex()", "pool = bytes(10 * 256).hex()",
        "test_ids_of_reservations_cannot_be_guessed",
    ),
    Guard(
        "An export has every page",
        "features/reports/reading.py", "bound |= {name: getattr(rows[-1], name) for name in last}", "return",
        "test_every_seat_and_every_sale_is_exported_once",
    ),
    Guard(
        "A cell that a fan typed runs in no spreadsheet",
        "shared/report/csv_export.py", "isinstance(cell, str) and cell.startswith(FORMULA)", "False",
        "test_cells_that_begin_a_formula_are_escaped",
    ),
    Guard(
        "Concurrent payments of one customer see each other",
        PAYMENT, "for digest in hashes)", "for digest in [])",
        "test_concurrent_payments_at_two_events_of_a_tour_share_one_limit",
    ),
    Guard(
        "A payment begins with the places that the hold has, not with those it had before this waited for it",
        f"{SQL}/begin.sql", "WHEN f.seen_version IS DISTINCT FROM f.version THEN 'stale'\n                ", "",
        "test_a_payment_that_waited_for_a_partial_release_begins_with_what_is_left",
    ),
    Guard(
        "A sale that waited for a change of the hold is taken once more",
        f"{SQL}/confirm.sql", "AND r.version = l.version\n", "\n",
        "test_a_sale_that_waited_for_another_change_sells_the_places_of_now",
    ),
    Guard(
        "A payment begins for the holder of the hold only",
        f"{SQL}/begin.sql",
        "WHEN NOT f.owner_ids::jsonb ?| ARRAY[f.event_id || ':' || f.holder, ':' || f.holder] THEN 'stranger'\n", "\n",
        "test_a_payment_begins_for_the_holder_only_and_answers_the_whole_reservation",
    ),
    Guard(
        "Of two steps of a batch on one hold or customer the second one sees the first",
        PAYMENT, "next_turn |= dict.fromkeys(concerns, turn + 1)", "next_turn |= dict.fromkeys(concerns, 0)",
        "test_steps_of_one_batch_on_the_same_hold_or_customer_take_turns",
    ),
    Guard(
        "A hold that is over stands in nobody's way",
        "services/inventory/reservations/reserve.py", "            await resolve_due(self._db, self._redis_stock, self._event_id, due, now_ms=now_ms)\n",
        "",
        "test_a_refused_hold_resolves_the_due_holds_and_is_tried_again",
    ),
    Guard(
        "An allotment is opened once",
        "features/stock/inventory/allotments.py", "allotment_id = :allotment_id AND opened_at IS NULL",
        "allotment_id = :allotment_id",
        "test_concurrent_openers_open_an_allotment_once",
    ),
    Guard(
        "A seat sold by code is refused to who has no code",
        "services/inventory/layout/layout.py", "            self.exclusive.require(selection.seats, fan)", "            pass",
        "test_seats_of_an_allotment_are_sold_to_who_names_its_code_and_are_reserved_for_others",
    ),
    Guard(
        "A process that knows no code sells no seat that is sold by code",
        "services/inventory/store/sql/insert_holds.sql", " AND coalesce(s.allotment_id, '') = wanted.allotment_id", "",
        "test_a_process_that_knows_an_older_allotment_sells_none_of_its_seats",
    ),
    Guard(
        "Of places sold by code only available ones move",
        "features/stock/inventory/sql/move_places.sql", "s.seats_remaining + locked.n >= 0", "true",
        "test_what_is_held_sold_or_elsewhere_does_not_move_and_is_named",
    ),
    Guard(
        "No fan guesses what is sold by code for ever",
        "services/inventory/reservations/code_tries.py", "> 0:", "> 10**9:",
        "test_guessing_codes_ends_with_a_refusal_and_the_right_code_is_not_tried_either",
    ),
    Guard(
        "A seat that is held or sold is not blocked",
        "features/stock/inventory/blocking.py", 'if row.status in ("held", "sold"):', "if False:",
        "test_blocking_held_or_sold_seats_is_refused_and_names_them",
    ),
    Guard(
        "Stock is corrected once, however many processes reconcile it",
        "services/inventory/reconcile/reconciler.py", "pg_try_advisory_xact_lock(hashtextextended('inventory reconcile ' || :event_id, 0))",
        "length(:event_id) > 0",
        "test_concurrent_reconcilers_correct_everything_once",
    ),
)  # fmt: skip
TYPES = "services/inventory/layout/price_types.py"
PRICES = (
    Guard(
        "Redis gives a hold no more of a price type than is left",
        HOLD, "  local denied = conflict({}, taken)\n  if denied then return denied end\n", "",
        "test_a_change_takes_no_more_of_a_type_than_there_are",
    ),
    Guard(
        "A change of price types is not another choice of places",
        "services/inventory/reservations/type_changes.py", "if _places(record.selection) != _places(wanted):", "if False:",
        "test_a_change_takes_no_more_of_a_type_than_there_are",
    ),
    Guard(
        "The database gives no more of a price type than is left",
        f"{SQL}/write_types.sql", " AND s.seats_remaining >= wanted.n", "",
        "test_what_the_database_refuses_is_as_it_was_in_redis",
    ),
    Guard(
        "What is being paid keeps its price",
        "services/inventory/reservations/type_changes.py", "            require_unpaid(record, self._redis_stock.slowest_ms())\n            if", "            if",
        "test_a_hold_that_is_being_paid_keeps_its_types",
    ),
    Guard(
        "A price type for members is bought with their code",
        TYPES, "if wanted.codes and (", "if False and (",
        "test_a_ticket_that_breaks_a_rule_is_named_and_nothing_is_held",
    ),
    Guard(
        "A price type of a presale is bought by its lane",
        TYPES, "if wanted.lanes and fan.lane not in wanted.lanes:", "if False:",
        "test_a_ticket_that_breaks_a_rule_is_named_and_nothing_is_held",
    ),
    Guard(
        "A companion comes with a guest",
        TYPES, "if counts[wanted.type_id] > guests:", "if False:",
        "test_a_companion_comes_with_each_guest",
    ),
    Guard(
        "A companion does not stay without the guest",
        "services/inventory/reservations/partial_release.py", "        layout.types.require_together(layout.tickets(kept))\n", "",
        "test_a_companion_comes_with_each_guest",
    ),
    Guard(
        "What is given back gives back its price type",
        f"{SQL}/release_stock.sql", "        UNION ALL SELECT '~' || type_id, sum(quantity) FROM tickets WHERE type_id <> '' GROUP BY type_id\n", "",
        "test_what_is_given_back_expires_or_is_returned_frees_its_type",
    ),
    Guard(
        "A price type that was sold stays in the event file",
        "services/inventory/catalogue/apply_event_file.py", 'elif now["kind"] == "type" and (taken', 'elif False and (taken',
        "test_the_number_in_all_changes_while_it_sells",
    ),
)  # fmt: skip
GUARDS = (*REDIS, *DATABASE, *SERVICE, *PRICES)
