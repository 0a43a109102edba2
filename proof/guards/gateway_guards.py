"""The guards of the gateway."""

from proof.guards.guard import Guard

GATEWAY = "services/gateway"
IDENTITY = f"{GATEWAY}/protection/identity.py"
PROOF_OF_WORK = "features/proof_of_work/gateway.py"
FORWARD_AUTH = "features/forward_auth/gateway"
DECISION = f"{FORWARD_AUTH}/decision.py"
LINE = f"{GATEWAY}/waiting_line"
GUARDS = (
    Guard(
        "A place's token is good for its event",
        IDENTITY, "        if token.event_id != event_id:\n            raise WrongEvent\n        return token\n", "        return token\n",
        "test_a_token_of_another_event_or_from_before_a_reset_is_refused",
    ),
    Guard(
        "A token of a removed key is refused although it was cached",
        IDENTITY, "            self._cached.clear()\n", "",
        "test_a_cached_token_of_a_removed_key_is_refused",
    ),
    Guard(
        "Another site cannot trade a fan's place for a new one",
        IDENTITY, 'if writes and (texts or b"origin" in fields):', "if writes and texts:",
        "test_another_site_cannot_trade_a_place_for_a_new_one",
    ),
    Guard(
        "Another site cannot act for a fan",
        IDENTITY, '        if scope["method"] not in SAFE_METHODS:\n            require_own_origin', '        if False:\n            require_own_origin',
        "test_another_site_cannot_act_for_a_fan",
    ),
    Guard(
        "A join key that somebody else knows is worth nothing",
        IDENTITY, "self.holder_for_key(event_id, key, *self._browser_secret(fields))", "self.holder_for_key(event_id, key)",
        "test_an_idempotency_key_gives_each_browser_a_place_of_its_own",
    ),
    Guard(
        "A join key is long enough to be nobody else's",
        IDENTITY, "if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):", "if False:",
        "test_a_short_or_malformed_idempotency_key_is_refused",
    ),
    Guard(
        "A form without cookies takes no place",
        IDENTITY, "        if not self._browser_secret(header_fields(scope)):\n            raise CookiesNeeded", "        if False:\n            raise CookiesNeeded",
        "test_a_browser_without_cookies_takes_no_place",
    ),
    Guard(
        "The memory of tokens is bounded",
        IDENTITY, "            if len(self._cached) > self._cached_max:", "            if False:",
        "test_the_number_of_cached_tokens_is_bounded_and_the_oldest_is_verified_again",
    ),
    Guard(
        "A proof of work is ours",
        PROOF_OF_WORK, "        if not result.verified:", "        if False:",
        "test_a_forged_proof_is_refused",
    ),
    Guard(
        "A proof of work is for its event",
        PROOF_OF_WORK, '        if data["event_id"] != event_id:', "        if False:",
        "test_the_proof_of_another_event_is_refused",
    ),
    Guard(
        "A proof of work is good for one place",
        PROOF_OF_WORK, "if fan.may_be_known and holder != fan.holder:", "if False:",
        "test_a_proof_is_bound_to_its_idempotency_key",
    ),
    Guard(
        "Only a live place exempts from the proof",
        PROOF_OF_WORK, "return place.status not in ENDED_STATES", "return True",
        "test_only_a_live_place_exempts_from_the_proof",
    ),
    Guard(
        "Only new fans raise the work of others",
        PROOF_OF_WORK, "            if not attempt.is_new:", "            if False:",
        "test_a_fan_who_joins_again_and_again_raises_nobodys_work",
    ),
    Guard(
        "Only an address with a swarm must prove work",
        PROOF_OF_WORK, "return min(1.0, max(0.0, joins_per_s * DECAY_S / rules.address_joins - 1) / 3)", "return min(1.0, joins_per_s)",
        "test_by_default_only_an_address_with_a_swarm_must_prove_work",
    ),
    Guard(
        "A wait is over at its time",
        PROOF_OF_WORK, "if not_before_s is not None and time.time() >= not_before_s:", "if not_before_s is not None:",
        "test_a_fan_waits_as_long_as_a_slow_phone_computes_and_joins",
    ),
    Guard(
        "A wait cannot be forged",
        PROOF_OF_WORK, "return int(not_before_s) if hmac.compare_digest(mac, genuine) else None", "return int(not_before_s)",
        "test_a_forged_or_expired_wait_counts_as_none",
    ),
    Guard(
        "A wait is good for a while",
        PROOF_OF_WORK, " or int(expires_s) < time.time():", ":",
        "test_a_forged_or_expired_wait_counts_as_none",
    ),
    Guard(
        "Few fans of an address wait at a time",
        PROOF_OF_WORK, "        if len(ends) >= self._most:", "        if False:",
        "test_few_fans_of_an_address_wait_at_a_time",
    ),
    Guard(
        "A feature that looks at a join holds its fan up for five seconds at most",
        "shared/web/before_join.py", "asyncio.timeout(BEFORE_JOIN_S)", "asyncio.timeout(None)",
        "test_a_feature_that_takes_too_long_refuses_the_join",
    ),
    Guard(
        "An address joins a limited number of fans",
        f"{GATEWAY}/protection/rate_limits.py", '            require_token(self._addresses.take(address, now_s=time.monotonic()), "address")', "            pass",
        "test_the_joins_from_one_address_are_limited",
    ),
    Guard(
        "A fan's return links are limited",
        DECISION, "        require_token(self._links.take((event_id, admission.holder), now_s=time.monotonic()), RETURN_LINK)\n", "",
        "test_the_return_links_of_a_fan_are_limited",
    ),
    Guard(
        "One address takes a share of the pages for fans without scripts",
        "features/pages/gateway/plain_pages.py", "allowed = address is None or self._shares.take(address, now_s=now_s) == 0", "allowed = True",
        "test_one_address_takes_a_share_of_the_pages_and_leaves_the_rest",
    ),
    Guard(
        "A fan who polls too fast costs the queue nothing",
        f"{GATEWAY}/protection/rate_limits.py", '        require_token(self._fans.take((event_id, holder), now_s=time.monotonic()), "fan")', "        pass",
        "test_a_fan_who_polls_too_fast_is_refused_without_a_request_to_the_queue",
    ),
    Guard(
        "A protected site is opened by a pass of its own event",
        DECISION, "        if admission.event_id != event_id:\n            raise WrongEvent\n        return admission", "        return admission",
        "test_only_a_valid_pass_of_this_event_and_epoch_is_admitted",
    ),
    Guard(
        "A pass of before a reset opens no protected site",
        DECISION, "if line is not None and line.epoch > admission.epoch:", "if False:",
        "test_only_a_valid_pass_of_this_event_and_epoch_is_admitted",
    ),
    Guard(
        "A released pass opens no protected site",
        DECISION, "if await self.revoked_passes.is_revoked(event_id, admission.jti):", "if False:",
        "test_the_code_of_a_pass_that_was_released_meanwhile_is_spent",
    ),
    Guard(
        "A fan is sent back to the sites of the rules only",
        DECISION, "        if site is None:\n            raise ReturnUrlNotAllowed\n", '        site = site or "https://anywhere.example"\n',
        "test_a_return_link_leads_to_a_site_of_the_rules_only",
    ),
    Guard(
        "No redirect goes to a host that the request names",
        DECISION, "    if request.site in rules.return_to:\n", "    if True:\n",
        "test_no_redirect_goes_to_a_host_that_the_request_names",
    ),
    Guard(
        "Failing open has a time limit",
        DECISION, "admits = may_admit and outage_s < rules.admit_on_error_s", "admits = may_admit",
        "test_an_outage_admits_everybody_for_its_time_limit_and_flapping_does_not_restart_it",
    ),
    Guard(
        "A flapping line does not restart the time limit",
        DECISION, "elif now_s - outage.healthy_since_s >= limit_s:", "else:",
        "test_an_outage_admits_everybody_for_its_time_limit_and_flapping_does_not_restart_it",
    ),
    Guard(
        "A code from the waiting room works in the browser it was made for",
        DECISION, "if grant is None or (grant.event_id, grant.site, grant.browser) != expected:", "if grant is None:",
        "test_a_handover_code_is_good_for_one_browser_at_one_site",
    ),
    Guard(
        "A code from the waiting room works once",
        DECISION, "raw = await self._redis.getdel(_key(code))", "raw = await self._redis.get(_key(code))",
        "test_a_handover_code_is_good_for_one_browser_at_one_site",
    ),
    Guard(
        "A tricky spelling of an exempt path is not exempt",
        f"{FORWARD_AUTH}/request.py", ' and "//" not in path and "/." not in path and ".." not in path', "",
        "test_an_exempt_path_is_read_and_plainly_spelled",
    ),
    Guard(
        "An exempt path is for reading",
        f"{FORWARD_AUTH}/request.py", 'if request.method not in ("GET", "HEAD") or not rules.let_through:', "if not rules.let_through:",
        "test_an_exempt_path_is_read_and_plainly_spelled",
    ),
    Guard(
        "A preflight passes for the seller's own sites",
        f"{FORWARD_AUTH}/request.py", ' and request.headers.get("origin") in own_sites', "",
        "test_a_preflight_request_passes_only_for_the_sites_of_the_rules",
    ),
    Guard(
        "A position never rises",
        f"{LINE}/snapshot.py", "{lane: max(at.head_seq, kept.get(lane, 0)) for", "{lane: at.head_seq for",
        "test_a_position_never_rises",
    ),
    Guard(
        "An older frame is ignored",
        f"{LINE}/cache.py", "elif (frame.epoch, frame.version) >= (entry.line.epoch, entry.line.frame.version):", "else:",
        "test_an_older_frame_is_ignored",
    ),
    Guard(
        "A place of before a reset is refused",
        f"{LINE}/cache.py", "            raise StaleEpoch if epoch < line.epoch else Unavailable", "            raise Unavailable if epoch < line.epoch else Unavailable",
        "test_a_token_of_another_event_or_from_before_a_reset_is_refused",
    ),
    Guard(
        "An invented event costs one question a second",
        f"{LINE}/cache.py", " or event_id in self._unknown:", ":",
        "test_an_unknown_event_is_looked_up_at_most_once_a_second",
    ),
    Guard(
        "A line that is old promises nothing",
        f"{LINE}/cache.py", "return line.frame.ready and time.monotonic() - line.received_s <= FRAME_STALE_S", "return line.frame.ready",
        "test_a_stale_line_has_no_estimate",
    ),
    Guard(
        "Twenty tabs of a fan are one question",
        f"{LINE}/place_client.py", "        return self._cached.get(_place(token))\n", "        return None\n",
        "test_the_status_of_a_place_below_the_head_is_requested_once_a_second",
    ),
    Guard(
        "Polls are spread, so that a crowd does not come at once",
        f"{LINE}/snapshot.py", "return ms - ms * (join_seq % JITTER_STEPS) // (JITTER_STEPS * share)", "return ms",
        "test_poll_intervals_are_spread_and_shorter_than_the_liveness_window",
    ),
    Guard(
        "Nobody is told to be silent for longer than they may be",
        f"{LINE}/snapshot.py", "return min(max(self.poll_min_ms, after_ms), turn_ms)", "return max(self.poll_min_ms, after_ms)",
        "test_polls_of_a_long_line_stay_within_the_budget_and_the_liveness_window",
    ),
    Guard(
        "Who is called within a second is not told to ask after two",
        f"{LINE}/snapshot.py", "        if self.frame.throttled is not None:\n", "        if True:\n",
        "test_poll_intervals_are_spread_and_shorter_than_the_liveness_window",
    ),
    Guard(
        "A fan behind the tickets reads the line, which tells sooner than a rare poll",
        f"{LINE}/snapshot.py", "return int(min(places, self._reach))", "return places",
        "test_in_a_long_line_fans_who_are_not_near_the_head_read_the_public_line_and_are_heard_of_rarely",
    ),
    Guard(
        "In a long line who may be called soon polls the status",
        f"{LINE}/snapshot.py", "if not self._is_long or position <= self.near_places:", "if not self._is_long:",
        "test_in_a_long_line_fans_who_are_not_near_the_head_read_the_public_line_and_are_heard_of_rarely",
    ),
    Guard(
        "Heartbeats of a long line are spread",
        f"{LINE}/snapshot.py", "_spread(self._heartbeat_ms, join_seq, share=5)", "self._heartbeat_ms",
        "test_heartbeats_of_a_long_line_are_spread",
    ),
    Guard(
        "Before the draw nobody has a position",
        f"{LINE}/snapshot.py", "rank = None if self.ranking.pending else self.ranking.rank(", "rank = self.ranking.rank(",
        "test_before_the_draw_no_fan_has_a_position",
    ),
    Guard(
        "Wrong codes of an address are limited",
        "features/codes/gateway.py", "self._guesses_of_addresses.guess(event_id, address) as guess", "self._guesses_of_addresses.guess(event_id, None) as guess",
        "test_wrong_access_codes_are_limited_for_each_address",
    ),
    Guard(
        "What stands in an address is never HTML",
        "features/pages/gateway/plain_pages.py", "value=\"{escape(entry)}\"", "value=\"{entry}\"",
        "test_what_stands_in_the_address_is_never_html",
    ),
    Guard(
        "A fan's own page is in no cache",
        "features/pages/gateway/plain_pages.py", '"cache-control": "private, no-store"', '"cache-control": "public, max-age=10"',
        "test_the_first_html_has_this_fans_position_and_nobody_elses",
    ),
)  # fmt: skip
