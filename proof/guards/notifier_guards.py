"""The guards of the notifier."""

from proof.guards.guard import Guard

NOTIFIER = "services/notifier"
API = f"{NOTIFIER}/api.py"
GUARDS = (
    Guard(
        "A process subscribes to an order before it reads it",
        f"{NOTIFIER}/feeds/registry.py", "generation = await self.subscriber.subscribe(*feed.channels)",
        "generation = self.subscriber.generation",
        "test_a_listener_is_known_before_its_order_is_read",
    ),
    Guard(
        "A lost frame of an order is made good",
        f"{NOTIFIER}/feeds/registry.py", "is_degraded or feed.is_due(now_s) or", "is_degraded or",
        "test_a_lost_frame_of_an_order_is_made_good",
    ),
    Guard(
        "A stream is opened by a credential of its event",
        API, "    if token.event_id != event_id:\n", "    if False:\n",
        "test_without_a_valid_credential_there_is_no_stream",
    ),
    Guard(
        "A pass of another event opens no stream",
        API, "    if admission.event_id != event_id:\n", "    if False:\n",
        "test_seats_need_a_pass_for_this_event",
    ),
    Guard(
        "A released pass opens no stream",
        API, "    await state.pass_streams.require_not_revoked(admission)\n", "",
        "test_a_released_pass_opens_no_stream",
    ),
    Guard(
        "A stream of seats ends with its pass",
        API, "return listener._replace(lasts_s=admission.expires_at_s - at_s)", "return listener",
        "test_a_stream_with_seats_ends_with_its_pass",
    ),
    Guard(
        "Seats are shown to admitted fans",
        API, "        if not state.passes.recognises(text):\n            raise NotAdmitted", "        if False:\n            raise NotAdmitted",
        "test_seats_need_a_pass_for_this_event",
    ),
    Guard(
        "An order's stream reaches its owner",
        API, "    if order_of_token != reference:\n", "    if False:\n",
        "test_an_order_stream_reaches_its_owner_only",
    ),
    Guard(
        "A filter has a length",
        API, "if len(text) > SECTIONS_MAX * 33 or not _filter.fullmatch(text):", "if False:",
        "test_a_malformed_filter_is_refused",
    ),
    Guard(
        "A process holds a limited number of streams",
        f"{NOTIFIER}/streams/open_stream.py", "if self._open >= settings.streams_max:", "if False:",
        "test_a_full_process_rejects_new_streams_with_a_retry_delay",
    ),
    Guard(
        "A fan holds a limited number of streams",
        f"{NOTIFIER}/streams/open_stream.py", "if self._by_identity[identity] >= self._per_identity:", "if False:",
        "test_the_streams_of_one_fan_are_limited",
    ),
    Guard(
        "Open streams are not delayed by new ones",
        f"{NOTIFIER}/headroom.py", 'return "lag"', "return None",
        "test_while_the_loop_lags_new_streams_are_rejected_and_later_accepted",
    ),
    Guard(
        "A process does not run out of memory for streams",
        f"{NOTIFIER}/headroom.py", '            return "memory"', "            return None",
        "test_too_little_memory_rejects_new_streams",
    ),
    Guard(
        "A released pass ends its streams",
        f"{NOTIFIER}/streams/open_stream.py", "            if is_revoked or feed.epoch > admission.epoch:", "            if feed.epoch > admission.epoch:",
        "test_releasing_a_pass_ends_its_streams_and_no_others",
    ),
    Guard(
        "A frame that was lost is noticed",
        f"{NOTIFIER}/feeds/feed.py", "            self.has_gap = True\n", "",
        "test_a_frame_that_pubsub_lost_is_read_from_the_log",
    ),
    Guard(
        "A silent channel is asked for",
        f"{NOTIFIER}/feeds/feed.py", "degraded = away or (self.is_repeated and last_s < now_s - channel_stale_after_s)", "degraded = away",
        "test_the_frames_of_a_stale_channel_are_requested",
    ),
    Guard(
        "An older frame is not shown after a newer one",
        f"{NOTIFIER}/feeds/feed.py", "            if _version(frame) <= _version(self.frame):", "            if False:",
        "test_older_and_unready_frames_are_dropped",
    ),
    Guard(
        "An id is good for the filter it was made for",
        f"{NOTIFIER}/feeds/feed.py", "        if filter_hash != _filter_hash(section_filter):", "        if False:",
        "test_a_frame_id_can_be_parsed_only_with_the_filter_it_was_made_for",
    ),
    Guard(
        "A change that a newcomer saw half of is sent again",
        f"{NOTIFIER}/topics/topic.py", "            self.due |= differing(self.sent, self.items)", "            self.due = set()",
        "test_a_page_that_left_after_any_frame_reaches_the_same_state",
    ),
    Guard(
        "No client stays wrong for long",
        f"{NOTIFIER}/topics/topic.py", "if parts and now_s - self._snapshot_s >= SNAPSHOT_EVERY_S:", "if False:",
        "test_a_full_snapshot_is_sent_from_time_to_time",
    ),
    Guard(
        "A reader that never reads is disconnected",
        f"{NOTIFIER}/topics/hub.py", "if since_s is not None and now_s - since_s > hub.tuning.slow_reader_max_s:", "if False:",
        "test_a_slow_reader_is_counted_as_paused_skipped_and_ended",
    ),
    Guard(
        "One broken stream does not stop the others",
        f"{NOTIFIER}/topics/hub.py", '        except Exception:\n            log.exception("stream.write_failed"', '        except ZeroDivisionError:\n            log.exception("stream.write_failed"',
        "test_one_broken_connection_does_not_stop_the_others",
    ),
    Guard(
        "A silent stream shows that it lives",
        f"{NOTIFIER}/topics/hub.py", "                hub.write(connection, HEARTBEAT)", "                pass",
        "test_a_silent_stream_gets_heartbeats",
    ),
    Guard(
        "An order's frames are for its holder",
        f"{NOTIFIER}/feeds/order_feed.py", "return self._order.current.holder == holder", "return True",
        "test_a_user_gets_their_own_order_and_no_other",
    ),
)  # fmt: skip
