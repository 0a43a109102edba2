"""The guards of the queue."""

from proof.guards.guard import Guard

QUEUE = "services/queue"
LUA = f"{QUEUE}/line/lua"
SQL = f"{QUEUE}/line/sql"
TICK = f"{QUEUE}/admission/lua/tick.lua"
CODES = "features/codes/queue"
NUMBERS = (
    Guard(
        "A batch that is sent again has the same numbers",
        f"{LUA}/allocate.lua", "if id == batch_id then return", "if false then return",
        "test_a_repeated_batch_gets_the_same_numbers",
    ),
    Guard(
        "Nobody joins a line that is not open",
        f"{LUA}/allocate.lua", "or now < number('opens_ms') or is_over then return {'closed'} end", "then end",
        "test_no_number_is_given_outside_the_opening_hours",
    ),
    Guard(
        "A full line takes nobody",
        f"{LUA}/allocate.lua", "if count < 1 then return {'line-full'} end", "if count < 1 then count = 1 end",
        "test_a_full_line_refuses_joins",
    ),
    Guard(
        "A state of Redis with a lost key answers nobody",
        f"{LUA}/prelude.lua", "  if redis.call('EXISTS', unpack(keys)) < #keys then return 'not-ready' end\n", "",
        "test_an_incomplete_state_gives_no_fan_a_wrong_status",
    ),
    Guard(
        "A place of before a reset is refused",
        f"{LUA}/prelude.lua", "  if room.epoch ~= epoch then return 'stale-epoch' end\n", "",
        "test_no_pass_is_given_by_a_room_that_is_rebuilt_or_reset_or_incomplete",
    ),
    Guard(
        "The line's clock never goes back",
        f"{LUA}/prelude.lua", "return math.max(redis_clock(offset_ms), number('last_ms')) end", "return redis_clock(offset_ms) end",
        "test_a_session_begins_no_earlier_than_the_last_tick",
    ),
    Guard(
        "An invented number gets no heartbeat",
        f"{LUA}/touch.lua", "if n >= 1 and n <= tail then", "if true then",
        "test_a_heartbeat_of_a_number_that_nobody_has_is_ignored",
    ),
    Guard(
        "A place is stored once, however often its batch is sent",
        f"{QUEUE}/migrations/versions/0001_first.sql", "CREATE UNIQUE INDEX uq_place_live_holder", "CREATE INDEX uq_place_live_holder",
        "test_one_fan_has_one_live_place_by_the_database_itself",
    ),
    Guard(
        "A lane that was removed takes nobody",
        f"{QUEUE}/places/sql/insert_places.sql",
        "      AND EXISTS (SELECT FROM queue.lane l WHERE l.event_id = $1 AND l.epoch = $2 AND l.lane = $3)\n", "",
        "test_a_join_of_a_lane_removed_meanwhile_is_refused",
    ),
    Guard(
        "Numbers from the database are behind the head",
        f"{SQL}/insert_places_in_db.sql", "(SELECT greatest(l.head_seq, (", "(SELECT greatest(0, (",
        "test_a_number_that_was_passed_over_without_a_place_is_not_given_after_a_loss",
    ),
    Guard(
        "A queue of joins has an end",
        f"{QUEUE}/places/join.py", "if self._in_flight >= self.in_flight_max:", "if False:",
        "test_joins_beyond_the_limit_of_waiting_batches_are_refused",
    ),
    Guard(
        "A room for signed-in fans takes nobody else",
        f"{QUEUE}/places/join.py", "if room.options.entry.signed_in_only and join.user_id is None:", "if False:",
        "test_a_room_for_signed_in_fans_refuses_others_and_keeps_their_earlier_places",
    ),
    Guard(
        "A sale that has ended takes nobody although Redis is away",
        f"{QUEUE}/places/join.py", "        if closed or (ends is not None and ends.timestamp() * 1000 <= at_ms):", "        if False:",
        "test_draining_after_a_pause_starts_without_tokens_and_refuses_joins_without_redis",
    ),
    Guard(
        "No number is given twice, whatever Redis says",
        f"{QUEUE}/migrations/versions/0001_first.sql", "    CONSTRAINT pk_place PRIMARY KEY (event_id, lane, epoch, join_seq),\n",
        "",
        "test_a_number_is_never_given_twice_when_redis_returns_to_an_older_state",
    ),
    Guard(
        "A batch that was numbered before a rebuild is numbered again",
        f"{QUEUE}/places/sql/insert_places.sql", " AND r.generation = $7::bigint",
        " AND (r.generation = $7::bigint OR true)",
        "test_a_batch_numbered_before_a_rebuild_is_refused_and_numbered_again",
    ),
    Guard(
        "A rebuild knows every number that is being stored",
        f"{QUEUE}/places/join.py", "; SELECT pg_advisory_xact_lock_shared({fence:d})", "",
        "test_a_rebuild_waits_for_a_batch_that_is_being_written",
    ),
    Guard(
        "A batch that was given up and is stored after all is called",
        f"{LUA}/commit_join.lua", "  clear_bits(done, first, last)\n", "",
        "test_a_batch_committed_after_it_was_given_up_is_called",
    ),
    Guard(
        "The line waits for a slow batch while its process lives",
        f"{LUA}/renew.lua", "redis.call('ZADD', KEYS[2], 'XX', 'CH', now, ARGV[i])", "0",
        "test_the_line_waits_for_a_slow_batch_while_its_process_renews_it",
    ),
    Guard(
        "No script takes so many places that it stops Redis",
        f"{LUA}/prelude.lua", "if #ARGV - first + 1 > length_max then", "if false then",
        "test_a_script_refuses_more_places_than_its_limit",
    ),
    Guard(
        "Places that a dead process numbered without Redis are called",
        f"{LUA}/raise_counter.lua", ", 'assume_live_until_ms', clock(ARGV[4]) + 3 * room.liveness_window_ms)", ")",
        "test_places_numbered_by_a_process_that_died_are_called",
    ),
)  # fmt: skip
CALLS = (
    Guard(
        "Calls keep to the rate",
        TICK, "local free = math.min(at_most + extra + 1e-6, ", "local free = math.min(1e6, ",
        "test_a_rate_of_a_thousand_calls_per_second_is_never_exceeded",
    ),
    Guard(
        "No more fans shop than may",
        TICK, "number('max_active') - active_n - called_n)", "1e6)",
        "test_calls_and_sessions_keep_to_max_active",
    ),
    Guard(
        "No more fans are called than tickets are left",
        TICK, "free = math.min(free, uncommitted)\n", "",
        "test_no_more_fans_are_called_than_tickets_are_left",
    ),
    Guard(
        "A lower rate applies to what was saved, too",
        TICK, "if rate < saved_at or rate <= 0 then saved =", "if false then saved =",
        "test_a_lower_rate_cuts_saved_tokens_and_the_invariant_checks_it",
    ),
    Guard(
        "Nobody is called behind a number that is being stored",
        TICK, "lane.limit = math.min(lane.limit, tonumber(string.match(member, '^%d+')) - 1)", "lane.limit = lane.limit",
        "test_a_later_batch_that_is_committed_first_does_not_overtake_an_earlier_one",
    ),
    Guard(
        "A batch whose process died does not stop the line",
        TICK, "  redis.call('ZREMRANGEBYSCORE', lane.inflight, '-inf', '(' .. string.format('%.0f', now - BATCH_DEAD_MS))\n", "",
        "test_the_line_waits_five_seconds_for_a_batch_whose_process_died",
    ),
    Guard(
        "A call ends by the slowest clock",
        TICK, "local slowest = math.min(now, others)", "local slowest = now",
        "test_a_call_and_a_session_last_until_their_given_time_although_a_clock_steps",
    ),
    Guard(
        "A fan who missed two calls has ended",
        TICK, "if missed >= number('max_misses') then", "if false then",
        "test_an_unclaimed_call_frees_its_slot_and_the_second_miss_ends_the_place",
    ),
    Guard(
        "Fans who are not there are passed over",
        TICK, "scan(lane, lane.head + 1, lane.limit, want, MAIN_BYTES, assume_live)", "scan(lane, lane.head + 1, lane.limit, want, MAIN_BYTES, true)",
        "test_silent_places_are_passed_over_and_called_after_a_heartbeat",
    ),
    Guard(
        "Nobody is passed over because Redis lost heartbeats",
        TICK, "if ARGV[2] ~= '1' and not stepped then", "if not stepped then",
        "test_silent_places_are_called_while_heartbeats_may_be_lost",
    ),
    Guard(
        "Nobody is passed over because Redis' clock stepped",
        TICK, "local stepped = now - last_ms - passed >= window_ms", "local stepped = false",
        "test_nobody_is_passed_over_because_redis_steps_forward",
    ),
    Guard(
        "Nobody is called before the sale starts",
        TICK, "  elseif now < number('starts_ms') then\n    shown = 'prequeue'", "  elseif false then\n    shown = 'prequeue'",
        "test_the_schedule_changes_the_state_of_the_room_by_the_clock_of_redis",
    ),
    Guard(
        "A lane waits for its own start",
        TICK, "if now >= number('lane_opens_ms:' .. lane.name) then", "if true then",
        "test_a_lane_waits_for_its_own_start",
    ),
    Guard(
        "An empty lane saves no calls",
        f"{QUEUE}/admission/lua/weighted_share.lua", "math.max(0, lane.owed), math.min(0, lane.owed), false", "0, lane.owed, false",
        "test_an_empty_lane_saves_no_calls",
    ),
    Guard(
        "One process of several consumes the purchases",
        f"{QUEUE}/places/purchases.py", "        if not await self._has_lease():\n", "        if False:\n",
        "test_one_process_of_several_consumes_the_purchases_and_the_next_goes_on_after_it",
    ),
    Guard(
        "Only its holder ends the lease of the purchases",
        f"{QUEUE}/places/purchases.py", "            if await self._has_lease():\n", "            if True:\n",
        "test_one_process_of_several_consumes_the_purchases_and_the_next_goes_on_after_it",
    ),
    Guard(
        "Several processes move the ceiling as one",
        f"{QUEUE}/admission/lua/adjust_ceiling.lua", "local since = math.min(STEP_MAX_MS, now - (tonumber(room.ceiling_ms) or now)) / 1000", "local since = 1",
        "test_several_control_loops_move_the_ceiling_as_one",
    ),
    Guard(
        "A share of the rate is called whatever checkout says",
        f"{QUEUE}/admission/lua/in_progress.lua", "math.max(number('ceiling') - in_progress, floor_tokens)", "math.max(number('ceiling') - in_progress, 0)",
        "test_fans_are_called_at_the_floor_whatever_checkout_says",
    ),
    Guard(
        "No more fans are let in than the ceiling on purchases in progress allows",
        f"{QUEUE}/admission/lua/in_progress.lua", "if room.ceiling_on ~= '1' then return tokens end", "if true then return tokens end",
        "test_fans_who_were_just_called_and_work_at_checkout_are_in_progress_and_no_more_are_called",
    ),
    Guard(
        "The ceiling does not fall below what checkout completes",
        f"{QUEUE}/admission/lua/adjust_ceiling.lua", "math.max(best, fallen)", "fallen",
        "test_the_ceiling_falls_while_checkout_is_slow_and_rises_while_it_holds_fans_back",
    ),
    Guard(
        "A new rate does not apply to the past",
        f"{LUA}/configure.lua", "  tokens = math.max(tokens, math.min(tonumber(room.token_cap) or 1, refilled))\n", "  tokens = 1000\n",
        "test_a_new_rate_does_not_apply_to_the_past",
    ),
    Guard(
        "An older configuration changes nothing",
        f"{LUA}/configure.lua", "if number('config_version') >= tonumber(ARGV[2]) then return 'older' end", "",
        "test_an_older_configuration_changes_nothing_in_redis",
    ),
    Guard(
        "Fans outside the rollout keep to the number who may shop",
        "features/rollout/queue/lua/admit_bypass.lua", "if free > 0 and joined and", "if joined and",
        "test_fans_who_bypass_the_line_keep_to_max_active",
    ),
    Guard(
        "A paused room calls nobody outside the rollout",
        "features/rollout/queue/lua/admit_bypass.lua", "if room.shown ~= 'open' or size", "if size",
        "test_a_paused_room_calls_no_fan_outside_the_rollout",
    ),
    Guard(
        "What is saved about calls never goes back",
        f"{SQL}/save_heads.sql", "SET head_seq = greatest(l.head_seq, h.head_seq)", "SET head_seq = h.head_seq",
        "test_saved_heads_never_go_back",
    ),
    Guard(
        "Changes of another gatekeeper stay until they are saved",
        f"{LUA}/acknowledge.lua", "'-inf', ARGV[2])", "'-inf', '(+inf')",
        "test_an_acknowledgement_keeps_the_changes_of_another_gatekeeper",
    ),
    Guard(
        "Changes of before a rebuild are not acknowledged",
        f"{LUA}/acknowledge.lua", "if redis.call('HGET', KEYS[1], 'generation') ~= ARGV[1] then return 'not-ready' end\n", "",
        "test_an_acknowledgement_from_before_a_rebuild_removes_no_change",
    ),
    Guard(
        "Of two rebuilds the newer one stands",
        f"{LUA}/rebuild.lua", "if number('generation') >= tonumber(ARGV[2]) or math.floor(number('epoch')) > tonumber(ARGV[1]) then return 'older' end", "",
        "test_an_older_rebuild_never_replaces_a_later_one",
    ),
    Guard(
        "A number that was lost is not given to another fan",
        f"{LUA}/rebuild.lua", "if room.epoch == ARGV[1] and string.find(fields[i], '^join_seq:') then", "if false then",
        "test_the_number_of_a_lost_place_is_not_given_to_another_fan",
    ),
    Guard(
        "After a loss the rate rises slowly",
        f"{LUA}/rebuild.lua", "'ramp_ms', ARGV[3] == '1' and now or 0)", "'ramp_ms', 0)",
        "test_after_a_loss_of_redis_the_rate_ramps_up_from_a_fifth",
    ),
    Guard(
        "Half a call a second is one every two seconds",
        TICK, "set.bucket_ms = now", "",
        "test_half_a_call_per_second_is_one_every_two_seconds",
    ),
    Guard(
        "A clock that goes back and forth adds no calls",
        TICK, "if now + APART_MS >= last_ms then", "if false then",
        "test_the_clock_never_goes_back",
    ),
    Guard(
        "Manual admissions that find no free slot lapse",
        TICK, "set.admit_now, set.manually_admitted = 0,", "set.manually_admitted =",
        "test_manual_admissions_need_no_tokens_and_those_beyond_max_active_are_dropped",
    ),
    Guard(
        "A fan who is called finds a ticket left",
        TICK, "available - called_n - math.min(", "available - math.min(",
        "test_no_more_fans_are_called_than_tickets_are_left",
    ),
    Guard(
        "A fan who still chooses finds a ticket left",
        TICK, " - math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))", "",
        "test_sessions_without_a_reservation_count_against_the_stock",
    ),
    Guard(
        "An idle fan keeps the last ticket from others for a while only",
        TICK, "math.min(expected_n, math.max(0, active_n - tonumber(ARGV[4])))", "math.max(0, active_n - ARGV[4])",
        "test_idle_sessions_reserve_the_last_tickets_for_one_claim_window_only",
    ),
    Guard(
        "A fan who holds a ticket keeps no second one from others",
        f"{QUEUE}/admission/lua/expected_buyers.lua", "      arrived = stock.begun - begun\n", "",
        "test_a_fan_who_took_a_hold_no_longer_counts_as_an_expected_buyer",
    ),
    Guard(
        "A fan whose hold ended may choose again",
        f"{QUEUE}/admission/lua/expected_buyers.lua", "      add(stock.released - released)\n", "",
        "test_a_fan_whose_hold_ended_counts_as_an_expected_buyer_again",
    ),
    Guard(
        "One tick searches a part of a silent line",
        TICK, "MAIN_BYTES, RETURNERS_BYTES = 32768", "MAIN_BYTES, RETURNERS_BYTES = 1e9",
        "test_one_tick_scans_a_limited_part_and_the_next_continues_there",
    ),
    Guard(
        "One tick searches a part of the line for fans who are back",
        TICK, "RETURNERS_BYTES = 32768, 8192", "RETURNERS_BYTES = 32768, 1e9",
        "test_one_tick_searches_a_limited_part_for_returners",
    ),
    Guard(
        "A lane is called by its weight at any rate",
        f"{QUEUE}/admission/lua/weighted_share.lua", "lane.made = 0", "lane.made, lane.owed = 0, 0",
        "test_single_calls_are_shared_by_weight_because_debts_carry_over",
    ),
    Guard(
        "The lane that is owed most is called first",
        f"{QUEUE}/admission/lua/weighted_share.lua", "if lane.owed > left[first].owed + 1e-9 then first = i end", "",
        "test_the_fairness_invariant_finds_shares_that_differ_from_the_weights",
    ),
    Guard(
        "After overload half of the ceiling is back in seconds",
        f"{QUEUE}/admission/lua/adjust_ceiling.lua", "    if slower < 0.5 then", "    if false then",
        "test_the_ceiling_falls_while_checkout_is_slow_and_rises_while_it_holds_fans_back",
    ),
    Guard(
        "The ceiling does not rise for a time in which it held nobody back",
        f"{QUEUE}/admission/lua/adjust_ceiling.lua", "math.min(since, RISE_MAX_S)", "since",
        "test_a_burst_after_a_quiet_time_does_not_raise_the_ceiling_for_that_time",
    ),
    Guard(
        "A service that has gone silent leaves the floor",
        f"{QUEUE}/admission/ceiling.py", "            if not shown and service in self._known:", "            if False:",
        "test_a_service_that_has_gone_silent_leaves_the_floor_and_one_never_heard_of_everything",
    ),
    Guard(
        "Autotune waits before its next change",
        "features/autotune/queue/autotune.py", " or await self._adjusted_recently(room.event_id)", "",
        "test_autotune_changes_the_rate_once_in_ten_seconds_and_writes_the_audit_log",
    ),
    Guard(
        "The tick keeps to the rate that rises after a loss",
        TICK, "if number('ramp_ms') > 0 then", "if false then",
        "test_after_a_loss_of_redis_the_rate_ramps_up_from_a_fifth",
    ),
    Guard(
        "Time before a new rate counts at the old one only",
        f"{LUA}/configure.lua", "'bucket_ms', now)", "'bucket_ms', room.bucket_ms)",
        "test_a_new_rate_does_not_apply_to_the_past",
    ),
    Guard(
        "Fans of a rebuilt line are called before their next heartbeat",
        f"{LUA}/rebuild.lua", "'assume_live_until_ms', now + 3 * window_ms", "'assume_live_until_ms', 0",
        "test_a_rebuilt_line_calls_fans_before_their_next_heartbeat",
    ),
    Guard(
        "Calls of before a rebuild are not saved",
        f"{SQL}/is_current_generation.sql", "generation = :generation", ":generation > 0",
        "test_calls_from_before_a_rebuild_are_not_saved",
    ),
)  # fmt: skip
CLAIMS = (
    Guard(
        "A call that is over gives no pass",
        f"{LUA}/claim.lua", "elseif deadline and tonumber(deadline) > math.min(now, tonumber(ARGV[4])) then", "elseif deadline then",
        "test_a_fan_who_is_not_called_or_whose_call_is_past_its_deadline_gets_no_pass",
    ),
    Guard(
        "A place is claimed by its holder",
        f"{QUEUE}/places/claims.py", "        if not _is_held(rows, place):\n", "        if place_id not in rows:\n",
        "test_a_place_is_claimed_only_by_its_holder",
    ),
    Guard(
        "A closed room gives no new pass",
        f"{QUEUE}/places/claims.py", "        if self._is_closed(room):\n", "        if False:\n",
        "test_a_closed_room_issues_no_new_pass_and_repeats_those_it_issued",
    ),
    Guard(
        "A new line gives no pass before inventory refuses the old ones",
        f"{QUEUE}/places/claims.py", "        await self.pass_invalidation.ensure(room)\n", "",
        "test_a_new_line_issues_no_pass_before_inventory_refuses_the_old_passes",
    ),
    Guard(
        "A claim of before a rebuild is not stored",
        f"{SQL}/insert_claims.sql", " AND r.generation = :generation)", " AND CAST(:generation AS bigint) > 0)",
        "test_a_claim_from_before_a_rebuild_is_refused",
    ),
    Guard(
        "A place that has ended gets no pass",
        f"{SQL}/insert_claims.sql", "WHERE p.end_reason IS NULL\n  AND EXISTS", "WHERE EXISTS",
        "test_a_claim_of_a_place_that_has_just_ended_is_not_stored",
    ),
    Guard(
        "A session is extended once",
        f"{SQL}/extend_claims.sql", " AND NOT a.extended", "",
        "test_only_once",
    ),
    Guard(
        "A session that is ending is not extended",
        f"{SQL}/extend_claims.sql", " AND a.expires_at_ms > CAST(:expires_after_ms AS bigint)", " AND CAST(:expires_after_ms AS bigint) > 0",
        "test_a_session_that_is_ending_is_not_extended",
    ),
    Guard(
        "A slot is free after its pass is refused",
        f"{QUEUE}/places/sessions.py", '                if end.outcome == "gone":', "                if True:",
        "test_a_live_reservation_extends_its_session",
    ),
    Guard(
        "Gateways hear of a revoked pass before its slot is free",
        f"{QUEUE}/places/sessions.py", "            raise Unavailable(\"Revoked passes cannot be published while Redis is unavailable. Try again.\") from away",
        "            return",
        "test_no_slot_is_freed_while_the_revoked_pass_cannot_be_published",
    ),
    Guard(
        "Leaving the line frees no slot whose pass still works",
        f"{SQL}/end_places.sql", "  AND NOT (CAST(:unclaimed AS boolean) AND EXISTS (", "  AND NOT (CAST(:unclaimed AS boolean) AND false AND EXISTS (",
        "test_leaving_during_a_claim_revokes_the_pass_of_that_claim",
    ),
    Guard(
        "A fan who bought has bought, whatever ends the place",
        f"{SQL}/end_places.sql", "CASE WHEN p.bought_at IS NULL THEN :end_reason ELSE 'completed' END", ":end_reason",
        "test_a_purchase_during_an_outage_of_inventory_completes_the_place_later",
    ),
    Guard(
        "A revoked pass is revoked until it expires",
        f"{QUEUE}/places/sql/revoked_passes.sql", "WHERE p.ended_at IS NOT NULL\n", "WHERE p.ended_at IS NULL\n",
        "test_a_revoked_pass_is_published_to_gateways_and_can_be_read_later",
    ),
    Guard(
        "A place ends once, also if it is left while its purchase is on the way",
        f"{QUEUE}/places/sql/mark_bought.sql", "locked.ended AND locked.end_reason IS NULL AS", "locked.ended AS",
        "test_a_place_that_ended_while_its_purchase_was_on_the_way_is_completed",
    ),
    Guard(
        "A call of a place that has ended cannot be missed any more",
        f"{SQL}/insert_misses.sql", "WHERE p.end_reason IS NULL\n", "",
        "test_a_call_of_a_place_that_ended_is_not_missed",
    ),
    Guard(
        "Slots are compared as soon as the counts of both sides differ",
        f"{QUEUE}/places/reconcile.py", "if compares or differ or cursor.differing:", "if compares:",
        "test_rows_are_compared_only_where_the_counts_differ",
    ),
    Guard(
        "Losses that cancel in the counts are found",
        f"{QUEUE}/places/reconcile.py", "if compares or differ or cursor.differing:", "if differ:",
        "test_two_losses_that_cancel_in_the_counts_are_found_within_a_minute",
    ),
    Guard(
        "A place of a fan who bought is ended later, if its pass could not be revoked",
        f"{QUEUE}/places/reconcile.py", "bought = await repository.bought_places(places_max=BOUGHT_MAX)", "bought = []",
        "test_a_place_that_could_not_be_ended_after_a_purchase_is_ended_by_the_next_run",
    ),
    Guard(
        "A purchase ends the place of its holder only",
        f"{QUEUE}/places/sql/find_bought.sql", " AND p.holder = bought.holder", " AND bought.holder <> ''",
        "test_a_purchase_ends_no_place_of_another_holder",
    ),
    Guard(
        "A room that is being rebuilt gives no pass",
        f"{LUA}/prelude.lua", "  if room.ready ~= '1' then return 'not-ready' end\n", "",
        "test_no_pass_is_given_by_a_room_that_is_rebuilt_or_reset_or_incomplete",
    ),
    Guard(
        "A pass is revoked before its slot is free",
        f"{QUEUE}/places/sessions.py", "            ends = (await self._inventory.end_sessions(question)).sessions\n",
        "            place_ids = [session.place_id for session, _ in batch]\n            await self.end_places(event_id, epoch, place_ids, end_reason=end_reason, unclaimed=False)\n            ends = (await self._inventory.end_sessions(question)).sessions\n",
        "test_leaving_with_a_pass_revokes_it_before_the_slot_is_free",
    ),
)  # fmt: skip
ACCESS = (
    Guard(
        "A code opens its lane to its limit",
        f"{CODES}/access_codes.py", "elif is_new_use and taken[name] >= code.uses_left:", "elif False:",
        "test_a_code_of_five_uses_opens_its_lane_five_times",
    ),
    Guard(
        "A revoked code opens nothing",
        f"{CODES}/sql/access_codes.sql", "WHERE revoked_at IS NULL\n", "WHERE true\n",
        "test_a_revoked_code_opens_no_lane_and_ends_no_place",
    ),
    Guard(
        "Codes are used one after the other",
        f"{CODES}/access_codes.py", '(FOR_UPDATE if lock else "")', '""',
        "test_twenty_concurrent_joins_with_one_single_use_code_make_one_place",
    ),
    Guard(
        "A fan who bought needs another code",
        f"{CODES}/sql/access_code_uses.sql", "WHERE p.end_reason IS DISTINCT FROM 'completed'", "WHERE true",
        "test_the_same_holder_may_use_a_code_again_until_they_have_bought",
    ),
    Guard(
        "Only the hash of a code is stored",
        f"{CODES}/access_codes.py", '"code_hash": code_hash(event_id, text), "lane"', '"code_hash": text.encode(), "lane"',
        "test_codes_are_stored_as_hashes_and_their_creation_is_in_the_audit_log",
    ),
    Guard(
        "A room has so many codes at most",
        f"{CODES}/access_codes.py", "+ request.count > CODES_MAX:", "+ request.count < 0:",
        "test_a_room_has_so_many_codes_at_most_also_if_they_are_made_at_once",
    ),
    Guard(
        "A double click admits once",
        f"{QUEUE}/rooms/store.py", "            if (await connection.execute(insert(admit_key).values(row).on_conflict_do_nothing())).rowcount:",
        "            if (await connection.execute(insert(admit_key).values(row).on_conflict_do_nothing())) is not None:",
        "test_requests_with_one_idempotency_key_admit_once",
    ),
    Guard(
        "An operator changes what they have seen",
        f"{QUEUE}/rooms/store.py", "    if by.version not in (None, room.version):", "    if False:",
        "test_requests_with_the_etag_of_an_older_version_change_nothing",
    ),
    Guard(
        "An operator alone sends visitors to no other site",
        f"{QUEUE}/rooms/store.py", "if guarded is not None and by.refuses", "if False and by.refuses",
        "test_an_operator_alone_sends_visitors_to_no_other_site",
    ),
    Guard(
        "The order of a line is fixed once somebody has joined",
        f"{QUEUE}/rooms/store.py", "    if (await connection.execute(joined.limit(1))).first():", "    if False:",
        "test_rules_cannot_change_once_a_fan_has_joined",
    ),
    Guard(
        "A lottery's seed is committed to before anybody enters",
        "features/lottery/queue/ordering.py", "if opens_at is not None and committed_at is not None and opens_at < committed_at:", "if False:",
        "test_a_lottery_whose_queue_has_opened_already_is_refused",
    ),
    Guard(
        "The seed of a lottery is published after the draw",
        "features/lottery/queue/draw.py", "row.seed.hex() if row.public_value is not None else None", "row.seed.hex()",
        "test_the_seed_is_published_nowhere_before_the_draw",
    ),
    Guard(
        "Who was numbered before entry to a lottery closed is an entrant or comes after them",
        "features/lottery/queue/draw.py", "closed_at=at, entrants=entrants)\n            await _require_rebuild(connection, room)\n",
        "closed_at=at, entrants=entrants)\n",
        "test_a_batch_numbered_before_the_close_comes_after_all_entrants",
    ),
    Guard(
        "A fan whose place is being stored when entry closes takes part",
        "features/lottery/queue/draw.py", '        await connection.execute(EXCLUSIVE_LOCK, {"event_id": event_id})\n', "",
        "test_closing_waits_for_a_batch_that_is_being_inserted_and_counts_it",
    ),
    Guard(
        "A fan whom the database numbers when entry closes takes part",
        "features/lottery/queue/draw.py", "select(lane_table.c.lane).with_for_update()",
        "select(lane_table.c.lane).with_for_update(skip_locked=True)",
        "test_closing_waits_for_places_that_are_numbered_by_the_database",
    ),
    Guard(
        "A loss of Redis keeps the order that was drawn",
        f"{QUEUE}/line/rebuild.py", "read_snapshot(connection, room.event_id, room.ranking)",
        "read_snapshot(connection, room.event_id, Ranking(room.epoch))",
        "test_a_loss_of_redis_keeps_the_drawn_order",
    ),
    Guard(
        "Who missed the draw calls nobody by the order of before",
        "shared/contracts/ranking.py", 'return f"{self.epoch}.1" if self.ranked else str(self.epoch)',
        "return str(self.epoch)",
        "test_a_gatekeeper_that_missed_the_draw_calls_nobody_by_entry_number",
    ),
)  # fmt: skip
GUARDS = (*NUMBERS, *CALLS, *CLAIMS, *ACCESS)
