"""The guards of loops that rest while they find nothing: what is due is done in time all the same."""

from proof.guards.guard import Guard

QUEUE, INVENTORY, ORDERS = "services/queue", "services/inventory", "services/orders"
GATEKEEPER = f"{QUEUE}/admission/gatekeeper.py"
BACKGROUND = "shared/concurrency/background.py"
QUIET_ROOMS = (
    Guard(
        "A fan who joins a quiet room is called",
        f"{QUEUE}/places/join.py", '    wake("queue")\n    return outcomes\n', "    return outcomes\n",
        "test_places_wake_the_relay_of_their_process",
    ),
    Guard(
        "What comes up in a quiet room is noticed",
        GATEKEEPER, '            wake("queue")\n', "",
        "test_a_tick_that_finds_something_in_a_quiet_room_wakes_the_loop",
    ),
    Guard(
        "A room in which a fan waits does not rest",
        GATEKEEPER, "    return not (counts or waiting or", "    return not (counts or",
        "test_a_room_in_which_a_fan_waits_is_not_quiet",
    ),
    Guard(
        "A quiet room opens at its time",
        GATEKEEPER, ' or room.changes_within(state["now_ms"], SOON_MS))', ")",
        "test_a_room_is_not_quiet_before_one_of_its_times",
    ),
    Guard(
        "A room whose heartbeats may be lost does not rest",
        GATEKEEPER, "if not self._quiet >= self.rooms.known.keys() or self._heartbeat_gaps:",
        "if not self._quiet >= self.rooms.known.keys():",
        "test_a_room_whose_heartbeats_may_be_lost_is_not_quiet",
    ),
    Guard(
        "The line of a quiet room is repeated before pages take it for old",
        GATEKEEPER, "Quiet(min((self.frames.quiet_for_s(event_id) for event_id in self._quiet), default=QUIET_S))", "Quiet()",
        "test_the_loop_is_quiet_until_a_frame_of_a_quiet_room_must_be_repeated",
    ),
    Guard(
        "A fan who was passed over and is back is called",
        f"{QUEUE}/places/heartbeats.py", '            wake("queue")  # a fan who was passed over may be back\n', "            pass\n",
        "test_only_heartbeats_of_fans_wake_the_loops",
    ),
    Guard(
        "Tickets that come back are offered at once",
        f"{QUEUE}/admission/stock.py", '                wake("queue")\n', "                pass\n",
        "test_stock_that_changes_wakes_the_loops_and_a_repeated_frame_does_not",
    ),
    Guard(
        "Joins that are being written are renewed however long that takes",
        f"{QUEUE}/places/join.py", "return None if self._inserting else Quiet()", "return Quiet()",
        "test_places_that_redis_lacks_and_joins_being_inserted_are_not_quiet",
    ),
    Guard(
        "Places that Redis lacks are told to it soon",
        f"{QUEUE}/places/join.py", "return None if self._pending else Quiet()", "return Quiet()",
        "test_places_that_redis_lacks_and_joins_being_inserted_are_not_quiet",
    ),
    Guard(
        "The ceiling moves as soon as checkout has something to do again",
        f"{QUEUE}/admission/ceiling.py", '                wake("queue")  # the control loop may have paused\n', "                pass\n",
        "test_the_control_loop_is_quiet_while_there_is_no_load",
    ),
)  # fmt: skip
OTHER_LOOPS = (
    Guard(
        "A hold ends at its time",
        f"{INVENTORY}/reservations/expiry_worker.py",
        "Quiet(min(QUIET_S, *(wait_ms / 1000 for wait_ms in waits.values())) if waits else QUIET_S)", "Quiet()",
        "test_a_sweep_is_quiet_until_the_next_deadline",
    ),
    Guard(
        "A hold ends at its time although Redis does not know it",
        f"{INVENTORY}/reservations/expiry_worker.py", "return None if any(row.soon for row in found) else Quiet()", "return Quiet()",
        "test_a_scan_is_quiet_except_before_a_deadline",
    ),
    Guard(
        "An allotment opens at its time",
        "features/stock/inventory/allotments.py", "return Quiet(min(QUIET_S, next_ms / 1000))", "return Quiet()",
        "test_the_opener_is_quiet_until_the_next_opening",
    ),
    Guard(
        "An allotment of an event file that was just applied opens at its time",
        f"{INVENTORY}/catalogue/apply_event_file.py", '            wake("inventory")\n', "",
        "test_the_opener_is_quiet_until_the_next_opening",
    ),
    Guard(
        "A hold reaches the event log at once",
        f"{INVENTORY}/store/reservations.py", '        wake("inventory")\n        return ["written"]', '        return ["written"]',
        "test_a_hold_and_its_end_wake_the_relay_of_their_process",
    ),
    Guard(
        "The end of a hold reaches the event log at once",
        f"{INVENTORY}/reservations/expiry.py", '    wake("inventory")\n', "",
        "test_a_hold_and_its_end_wake_the_relay_of_their_process",
    ),
    Guard(
        "A sale reaches the event log at once",
        f"{ORDERS}/store/store.py", '        wake("orders")\n', "        pass\n",
        "test_each_write_of_an_order_wakes_the_relay_of_its_process",
    ),
    Guard(
        "A webhook of a shop is tried again at its time",
        "features/webhooks/orders/dispatcher.py", "return None if self.has_soon or self._running else Quiet(QUIET_S)", "return Quiet(QUIET_S)",
        "test_polls_are_rare_while_nothing_is_in_work_and_nothing_becomes_due_soon",
    ),
    Guard(
        "The line hears of a purchase that a quiet checkout begins",
        "shared/process/load.py", "                wake(self._service)\n", "",
        "test_a_frame_without_news_says_when_the_next_one_comes_late_and_a_purchase_wakes_the_loop",
    ),
    Guard(
        "A loop does not rest beyond what is due",
        BACKGROUND, "min(quiet_s, found.for_s)", "quiet_s",
        "test_what_is_due_soon_does_not_make_the_later_pauses_short",
    ),
    Guard(
        "A loop that is woken again and again keeps to its pace",
        BACKGROUND, "await asyncio.sleep(_rest_of_interval_s(started_s + interval_s - clock(), interval_s))", "await asyncio.sleep(0)",
        "test_a_loop_that_is_woken_again_and_again_runs_at_its_own_pace",
    ),
    Guard(
        "A loop that fails goes on, and not without a pause",
        BACKGROUND, "                    await asyncio.sleep(retry_s)\n", "                    await asyncio.sleep(0)\n",
        "test_only_failures_in_a_row_make_the_pause_longer",
    ),
)  # fmt: skip
GUARDS = (*QUIET_ROOMS, *OTHER_LOOPS)
