"""The guards of what the services share."""

from proof.guards.guard import Guard

TOKENS = "shared/security/tokens.py"
AUTH = "shared/security/auth.py"
TOKEN_GUARDS = (
    Guard(
        "A place in the line is proved by our signature only",
        TOKENS, "if not hmac.compare_digest(mac.encode(), expected.encode()):", "if False:",
        "test_a_token_changed_anywhere_is_refused",
    ),
    Guard(
        "A pass that Onsale did not sign opens nothing",
        TOKENS, 'key.verify(signed, f"{header}.{claims}".encode())', "pass",
        "test_a_pass_signed_with_our_public_key_as_a_secret_is_refused",
    ),
    Guard(
        "A pass cannot choose how it is verified",
        TOKENS, "self._by_header[header], canonical_unb64(claims)",
        "next(iter(self._by_header.values())), canonical_unb64(claims)",
        "test_a_header_we_do_not_write_is_refused_even_with_our_signature",
    ),
    Guard(
        "A pass has one spelling, so no spelling escapes a limit",
        TOKENS, '    if b64(raw) != text:\n        raise ValueError("not canonical base64url")\n', "",
        "test_queue_and_order_tokens_have_one_spelling_too",
    ),
    Guard(
        "A made-up signature of a known pass is refused",
        TOKENS, "if admission is None or known != signature:", "if admission is None:",
        "test_a_pass_has_one_spelling_however_often_its_signature_is_made_up",
    ),
    Guard(
        "An expired pass buys nothing",
        TOKENS, "if not allow_expired and now_s > admission.expires_at_s + PASS_LEEWAY_S:", "if False:",
        "test_an_expired_pass_is_refused_but_can_still_be_read_with_allow_expired",
    ),
    Guard(
        "A pass is not valid before its time",
        TOKENS, "or claims[\"nbf\"] > time.time() + PASS_LEEWAY_S", "",
        "test_a_pass_that_is_not_valid_yet_is_refused_but_small_clock_differences_are_allowed",
    ),
    Guard(
        "Another token of ours is no pass",
        TOKENS, 'or (claims["iss"], claims["typ"]) != (PASS_ISSUER, PASS_TYPE)', "",
        "test_a_missing_claim_or_one_of_another_type_is_refused_even_with_our_signature",
    ),
    Guard(
        "A seal of other claims is worth nothing",
        TOKENS, "hmac.compare_digest(seal, _seal(self._seal, kid, header, claims))", "True",
        "test_a_seal_of_other_claims_or_of_another_secret_is_refused",
    ),
    Guard(
        "A pass of a removed key is refused although it was cached",
        TOKENS, "for kid, raw in self._known_keys.items()\n        }\n        self._cache.clear()",
        "for kid, raw in self._known_keys.items()\n        }",
        "test_a_cached_pass_of_a_removed_key_is_refused",
    ),
    Guard(
        "The key of one order opens no other",
        TOKENS, "hmac.compare_digest(canonical_unb64(mac), keys.mac(purpose, reference, kid=kid))", "True",
        "test_an_order_token_is_valid_for_its_order_only",
    ),
    Guard(
        "Two lists of parts never have one signature",
        TOKENS, 'message += len(raw).to_bytes(4, "big") + raw', "message += raw",
        "test_a_mac_depends_on_where_its_parts_are_divided",
    ),
    Guard(
        "A secret key has at least 32 bytes",
        TOKENS, " or len(raw := unb64(encoded)) < 32:", " or not (raw := unb64(encoded)):",
        "test_an_invalid_keyring_is_refused",
    ),
    Guard(
        "A ticket that was not signed by us admits nobody",
        "shared/security/tickets.py", 'key.verify(unb64(parts[count]), ".".join(parts[:count]).encode())', "pass",
        "test_a_ticket_code_changed_anywhere_is_refused",
    ),
    Guard(
        "A screenshot of a rotating code expires",
        "shared/security/tickets.py", "if not any(hmac.compare_digest(", "if False and not any(hmac.compare_digest(",
        "test_a_screenshot_of_a_rotating_code_expires",
    ),
)  # fmt: skip
OPERATOR_GUARDS = (
    Guard(
        "An internal call without our signature is refused",
        "shared/rpc.py", "if fresh and hmac.compare_digest(unb64(mac), expected):", "if fresh:",
        "test_internal_routes_are_404_on_the_public_listener_and_need_a_signature",
    ),
    Guard(
        "A signed internal call cannot be sent again later",
        "shared/rpc.py", "fresh = abs(now_s - int(at)) <= SERVICE_SKEW_MAX_S", "fresh = True",
        "test_a_signed_call_is_good_for_half_a_minute_and_for_this_body_only",
    ),
    Guard(
        "A call within one process goes on though its caller was cancelled, as over HTTP",
        "shared/web/internal_api.py", "answered = await asyncio.shield(call)", "answered = await call",
        "test_a_call_goes_on_though_its_caller_was_cancelled",
    ),
    Guard(
        "A call within one process tells nobody the text of a bug",
        "shared/web/internal_api.py", "problem = problem_of_exception(raised, route, service=self._name, route=route)",
        "problem = InternalError(str(raised))",
        "test_a_problem_is_raised_as_it_is_over_http",
    ),
    Guard(
        "Limits counted in memory hold for all processes together",
        "shared/security/limits.py", "per_s, burst = per_s / shared_by, ceil(burst / shared_by)", "pass",
        "test_several_processes_allow_no_more_than_one",
    ),
    Guard(
        "No more calls run within one process at a time than over connections",
        "shared/rpc.py", "async with asyncio.timeout(deadline_s), self._calls_here:", "async with asyncio.timeout(deadline_s):",
        "test_no_more_calls_run_at_once_than_over_connections",
    ),
    Guard(
        "Each caller within one process gets a problem of its own",
        "shared/web/internal_api.py", "return from_document(status, problem.body())", "return problem",
        "test_one_problem_for_several_callers_is_several_objects",
    ),
    Guard(
        "A service that has ended is not called as a function any more",
        "shared/rpc.py", "        del _here[name]\n", "        pass\n",
        "test_a_service_that_has_ended_is_called_by_http_again",
    ),
    Guard(
        "A fan's calls to orders are limited over all processes",
        "services/orders/app.py", "keys_max=settings.cache_entries_max, shared_by=settings.processes", "keys_max=settings.cache_entries_max",
        "test_every_limit_of_a_service_is_made_for_all_its_processes",
    ),
    Guard(
        "A fan's calls to inventory are limited over all processes",
        "services/inventory/app.py", ", shared_by=settings.processes", "",
        "test_every_limit_of_a_service_is_made_for_all_its_processes",
    ),
    Guard(
        "Holds of an address are limited over all processes",
        "services/inventory/state.py", "most=ceil(settings.address_holds_max / settings.processes)", "most=settings.address_holds_max",
        "test_every_limit_of_a_service_is_made_for_all_its_processes",
    ),
    Guard(
        "Wrong keys are counted over all processes",
        "shared/web/app.py", "WrongKeys(shared_by=settings.processes)", "WrongKeys()",
        "test_every_limit_of_a_service_is_made_for_all_its_processes",
    ),
    Guard(
        "Wrong codes are counted over all processes",
        "features/codes/gateway.py", "WRONG_CODES_BURST_S, shared_by=processes)", "WRONG_CODES_BURST_S)",
        "test_every_limit_of_a_service_is_made_for_all_its_processes",
    ),
    Guard(
        "An operator's key that is not set opens nothing",
        AUTH, '            raise BadCredential("This admin key is unknown.")', '            return Operator("x", "admin")',
        "test_an_admin_key_names_an_operator_and_a_role",
    ),
    Guard(
        "An operator's key is not short",
        AUTH, " or len(secret) < 20:", ":",
        "test_an_invalid_admin_key_setting_is_refused",
    ),
    Guard(
        "An operator's session cannot be changed",
        AUTH, "if mark != SESSION_MARK or not hmac.compare_digest(canonical_unb64(mac), expected):", "if mark != SESSION_MARK:",
        "test_a_session_expires_and_cannot_be_changed",
    ),
    Guard(
        "An operator's session ends after eight hours",
        AUTH, "if now_s >= expires_at_s or not current:", "if not current:",
        "test_a_session_expires_and_cannot_be_changed",
    ),
    Guard(
        "A session ends when its key is removed or its role changed",
        AUTH, "admin_keys.has(operator, fingerprint) if fingerprint else role", "True if fingerprint else role",
        "test_a_session_ends_when_its_key_is_rotated_or_its_role_changed",
    ),
    Guard(
        "A service that asks for itself changes nothing",
        AUTH, 'if fingerprint else role == "viewer"', "if fingerprint else True",
        "test_a_service_that_asks_for_itself_may_only_view",
    ),
    Guard(
        "Wrong keys of an address are limited",
        AUTH, "        if not wait_s:\n            return wrong", "        if True:\n            return wrong",
        "test_wrong_keys_of_an_address_are_limited_and_the_right_one_is_never_refused",
    ),
    Guard(
        "Another site cannot act with an operator's cookie",
        AUTH, "        require_own_origin(fields, secure=name.startswith(HOST_ONLY))", "        pass",
        "test_a_write_with_the_cookie_needs_our_own_origin",
    ),
    Guard(
        "An operator's cookie is bound to this host and HTTPS",
        AUTH, "secure=not is_loopback(host)", "secure=False",
        "test_only_at_an_address_of_this_machine_the_cookie_does_without_https",
    ),
    Guard(
        "A viewer changes nothing",
        AUTH, "if _RANK[operator.role] < _RANK[role]:", "if False:",
        "test_a_viewer_cannot_change_anything",
    ),
    Guard(
        "An approval is ours",
        AUTH, "if not signed or mark != APPROVAL_MARK:", "if False:",
        "test_an_approval_that_no_service_signed_does_not_count",
    ),
    Guard(
        "An approval expires",
        AUTH, "    if now_s >= expires_at_s:\n        raise SecondPersonNeeded", "    if False:\n        raise SecondPersonNeeded",
        "test_an_approval_expires",
    ),
    Guard(
        "An approval is good for exactly this request",
        AUTH, "if approved != [*request]:", "if False:",
        "test_nothing_of_the_request_may_differ",
    ),
    Guard(
        "An approval is of no use to another operator",
        AUTH, "if KeyHolder(name, fingerprint) != requester:", "if False:",
        "test_an_approval_is_of_no_use_to_another_operator",
    ),
    Guard(
        "Nobody approves their own request",
        AUTH, "if requester.name == approver.name or requester.fingerprint == approver.fingerprint:", "if False:",
        "test_nobody_approves_what_they_asked_for_not_with_a_second_key_either",
    ),
    Guard(
        "Who approved may still do so",
        AUTH, "if not admin_keys.has(approver, by_fingerprint) or _RANK[approver.role] < _RANK[role]:", "if False:",
        "test_the_approver_must_still_have_the_key_and_the_role",
    ),
    Guard(
        "No spelling of a path goes around the second person",
        AUTH, 'scope["path_params"].get("action")', "None",
        "test_each_control_needs_a_second_person_when_it_is_listed_and_only_then",
    ),
)  # fmt: skip
CREDENTIAL_GUARDS = (
    Guard(
        "Another site cannot act with a fan's cookies",
        TOKENS, "if not host or host != fields.get(b\"host\", b\"\").lower() or scheme", "if scheme",
        "test_a_cookie_reads_from_anywhere_and_writes_from_our_own_pages_only",
    ),
    Guard(
        "A page over plain HTTP cannot act with the cookies of HTTPS",
        TOKENS, " or scheme != requested or scheme not in SCHEMES:", ":",
        "test_a_write_with_a_cookie_comes_from_a_page_of_the_same_scheme",
    ),
    Guard(
        "Over HTTPS no other host of the domain sets our cookies",
        TOKENS, 'return f"{HOST_ONLY}{name}" if secure else name', "return name",
        "test_cookies_are_secure_where_the_operator_says_so",
    ),
    Guard(
        "No script reads a credential's cookie",
        TOKENS, "'' if readable else 'HttpOnly; '", "''",
        "test_a_credential_is_in_a_cookie_that_no_script_reads",
    ),
    Guard(
        "A Bearer header is the only credential that counts beside a cookie",
        TOKENS, "    if token is not None:\n        return [token]\n", "",
        "test_an_authorization_header_comes_before_the_cookie",
    ),
    Guard(
        "Limits count the credential that a request uses",
        "shared/security/limits.py", "        if (wait_s := self._calls.take(key, now_s=monotonic())) > 0:",
        "        if (wait_s := self._calls.take(key, now_s=monotonic())) > 1e9:",
        "test_a_cookie_beside_the_pass_escapes_no_limit_of_its_fan",
    ),
    Guard(
        "A limit's memory is bounded",
        "shared/security/limits.py", "            buckets.popitem(last=False)", "            pass",
        "test_the_number_of_buckets_is_bounded_and_a_busy_one_is_kept",
    ),
    Guard(
        "A burst is limited",
        "shared/security/limits.py", "        wait_s = full_at_s - now_s - self._slack_s\n", "        wait_s = 0.0\n",
        "test_a_bucket_allows_its_burst_and_then_its_rate",
    ),
    Guard(
        "Guesses sent at once are limited like those sent one after the other",
        "shared/security/limits.py", "if wait_s > 0 and not await self._handed_over(key):", "if False:",
        "test_two_hundred_guesses_at_once_are_looked_up_to_the_limit_only",
    ),
    Guard(
        "A guess that is broken off counts",
        "shared/security/limits.py", "            guess.wrong = True\n", "            pass\n",
        "test_a_look_up_that_is_cancelled_counts_and_leaves_nothing_behind",
    ),
    Guard(
        "Nobody chooses the address that limits count",
        "shared/security/limits.py",
        "            if (customer := trusted.customer(bare_address(text))) is not None:",
        '            if (customer := trusted.customer(bare_address(forwarded[0].decode().partition(",")[0]))) is not None:',
        "test_a_forwarded_address_is_trusted_only_from_our_own_proxies",
    ),
    Guard(
        "Clients without a readable address share one limit",
        "shared/security/limits.py", "        return UNREADABLE\n", "        return None\n",
        "test_clients_whom_a_proxy_names_unreadably_share_one_limit",
    ),
    Guard(
        "One household with IPv6 is one client",
        "shared/security/limits.py", "IPV6_ONE_CUSTOMER_BITS = 64", "IPV6_ONE_CUSTOMER_BITS = 128",
        "test_a_forwarded_address_is_trusted_only_from_our_own_proxies",
    ),
    Guard(
        "A user's token is for this shop",
        "features/sign_in/users.py", '"verify_aud": settings.user_jwt_audience is not None', '"verify_aud": False',
        "test_a_token_with_a_missing_or_wrong_claim_is_refused",
    ),
    Guard(
        "A user's token expires although it was cached",
        "features/sign_in/users.py", "if time.time() >= expires_at_s + LEEWAY_S:", "if False:",
        "test_a_cached_token_is_verified_once_and_still_expires",
    ),
    Guard(
        "A withdrawn key of the identity provider opens nothing",
        "features/sign_in/users.py", "            self._cache.clear()\n", "",
        "test_a_rotated_key_is_fetched_once_and_a_withdrawn_key_is_refused",
    ),
    Guard(
        "An unknown key costs the identity provider one request",
        "features/sign_in/provider_keys.py", "if key is None and (self._fetches or self._may_fetch()):", "if key is None:",
        "test_tokens_of_unknown_keys_do_not_cause_repeated_requests",
    ),
    Guard(
        "No secret is taken from a set of public keys",
        "features/sign_in/provider_keys.py", ' or "d" in member or ', " or ",
        "test_a_private_key_or_a_secret_in_a_jwk_set_is_refused",
    ),
    Guard(
        "At every time some key signs",
        "shared/security/key_rotation.py", "if older.gone_at_s is not None and older.gone_at_s < newer.signs_from_s:",
        "if False:",
        "test_a_broken_key_file_is_refused_with_a_reason_and_the_old_keys_stay",
    ),
)  # fmt: skip
OTHER_GUARDS = (
    Guard(
        "The internal API answers on its own listener only",
        "shared/web/listener.py", 'scope["path"].startswith(INTERNAL_PREFIXES) != self._inside:', "False:",
        "test_internal_routes_are_404_on_the_public_listener_and_need_a_signature",
    ),
    Guard(
        "A body has a limit, whatever its head says",
        "shared/web/request.py", "if not message or taken > most:", "if not message:",
        "test_a_body_without_a_content_length_is_bounded_too",
    ),
    Guard(
        "A process that stops says so before it stops",
        "shared/web/app.py", "if request.app.state.draining:", "if False:",
        "test_readiness_follows_its_checks_and_ends_when_draining",
    ),
    Guard(
        "A bug tells nobody its text",
        "shared/web/answers.py", "    return problems.InternalError()", "    return problems.InternalError(str(raised))",
        "test_an_internal_error_reveals_nothing",
    ),
    Guard(
        "A form of another site does nothing",
        "features/pages/forms.py", "            origin = _require_own_page(request.fields, secure=secure)", '            origin = ""',
        "test_a_form_of_another_site_is_refused",
    ),
    Guard(
        "A form has limits",
        "features/pages/forms.py", "parse_qsl(body.decode(\"ascii\"), max_num_fields=FIELDS_MAX)", 'parse_qsl(body.decode("ascii"))',
        "test_a_form_has_limits",
    ),
    Guard(
        "A process with too much to do refuses newcomers at once",
        "shared/process/load.py", "        if to_do >= min(max(LEAST_MAX, self._per_s * within_s), CROWD_MAX):",
        "        if False:",
        "test_as_many_wait_as_are_answered_in_a_moment",
    ),
    Guard(
        "Operators, providers and probes are never refused for load",
        "shared/process/load.py", "        if path.startswith(NOT_FANS):", "        if False:",
        "test_a_refusal_is_a_problem_that_says_when_to_come_again_and_the_line_learns_of_it",
    ),
    Guard(
        "No more is accepted than is completed in the background",
        "shared/process/load.py", "        self.done += self._background is _nothing", "        self.done += 1",
        "test_who_buys_is_refused_while_more_is_accepted_than_completed",
    ),
    Guard(
        "Who has a credential is refused after those without",
        "shared/process/load.py", "WITHIN_S if _has_credential(scope) else NEWCOMERS_WITHIN_S", "NEWCOMERS_WITHIN_S",
        "test_who_has_a_credential_is_refused_after_those_without",
    ),
    Guard(
        "Nobody is refused for orders that a provider held up",
        "shared/process/load.py", "max(0, self._working + waiting - held_up)", "(self._working + waiting)",
        "test_nobody_is_refused_for_what_a_provider_has_held_up",
    ),
    Guard(
        "A service that has stopped answering is slow, not idle",
        "shared/process/load.py", ", *(s for s in ages if s >= STUCK_S)", "",
        "test_an_unanswered_request_counts_with_its_age_once_it_is_old",
    ),
    Guard(
        "A purchase whose request waits for it counts once",
        "shared/process/load.py", "        self.in_flight -= 1\n        try:\n            yield\n        finally:\n            self.in_flight += 1\n", "        yield\n",
        "test_a_request_that_waits_for_its_order_is_counted_once",
    ),
    Guard(
        "What waits for a provider is nobody's load",
        "shared/process/load.py", "return (self._working - self.outside_now) / self._working if self._working else 1.0", "return 1.0",
        "test_work_in_the_background_counts_and_is_never_refused_but_not_while_it_waits_for_somebody_else",
    ),
    Guard(
        "Who only looks keeps out nobody who pays",
        "shared/process/load.py", "            work = self.purchases\n", "            work = self.looks\n",
        "test_who_looks_does_not_keep_out_who_pays_and_a_price_is_looked_at",
    ),
    Guard(
        "Every queue has an end",
        "shared/concurrency/coalescing.py", "if len(self._waiting) >= self._waiting_max:", "if False:",
        "test_items_over_the_limit_are_refused_at_once",
    ),
    Guard(
        "An event is published after its change is committed, and in order",
        "shared/messaging/sql/read_batches.sql", "ORDER BY w.id, e.n", "ORDER BY w.id DESC, e.n",
        "test_only_committed_events_are_published_and_in_order",
    ),
    Guard(
        "An event whose lower id commits later is not skipped",
        "shared/messaging/relay.py", "            if rows[0].is_decided:", "            if True:",
        "test_an_event_whose_lower_id_commits_later_is_not_skipped",
    ),
    Guard(
        "A transaction has its transaction id before it draws the id of an event",
        "shared/messaging/outbox.py", "CASE WHEN pg_current_xact_id() IS NOT NULL THEN '{schema}.outbox_batch_id_seq'::regclass END",
        "'{schema}.outbox_batch_id_seq'::regclass",
        "test_a_transaction_has_its_transaction_id_before_it_draws_an_id",
    ),
    Guard(
        "One relay at a time publishes a service's events",
        "shared/messaging/relay.py", "if not (await connection.execute(outbox_statement(\"try_lock\", lock), bound)).one().is_ours:", "if await connection.execute(outbox_statement(\"try_lock\", lock), bound) is None:",
        "test_one_relay_publishes_at_a_time",
    ),
    Guard(
        "One relay serves all services of a process",
        "shared/messaging/relay.py", "_relays.setdefault(self._database, Relay())", "Relay()",
        "test_one_relay_serves_all_services_of_a_process_until_the_last_ends",
    ),
    Guard(
        "A feature that hangs over events has failed",
        "shared/messaging/relay.py", "async with asyncio.timeout(TAKE_S):", "async with asyncio.timeout(None):",
        "test_one_that_hangs_has_failed",
    ),
    Guard(
        "Events that are published again come to no feature again",
        "shared/messaging/sql/set_back.sql", " AND c.name = 'relay'", "",
        "test_publishing_again_moves_no_reader",
    ),
    Guard(
        "Old events wait for a feature that has not read them",
        "shared/messaging/sql/delete_old.sql", "id <= (SELECT min(id) FROM {schema}.outbox_cursor) OR ", "true OR ",
        "test_old_events_wait_for_a_reader_for_a_week",
    ),
    Guard(
        "A service without a free connection holds up no other's events",
        "shared/messaging/relay.py", "(*self._readers[1:], *self._readers[:1])", "self._readers",
        "test_a_service_whose_pool_has_no_connection_holds_up_no_other",
    ),
    Guard(
        "A batch that ends does not undo a move of the cursor",
        "shared/messaging/sql/move_cursor.sql", " WHERE c.id = CAST(:read AS bigint)", " WHERE CAST(:read AS bigint) >= 0",
        "test_the_end_of_a_batch_does_not_undo_a_move_of_the_cursor",
    ),
    Guard(
        "A cursor that is ahead of all events is set anew",
        "shared/messaging/relay.py", "        if cursor > last:", "        if False:",
        "test_a_cursor_ahead_of_all_events_is_set_anew",
    ),
    Guard(
        "Holds end by the slowest of all clocks",
        "shared/runtime/clock.py", "return now_ms() + min(0, *self.ahead_ms[POSTGRES], *self.ahead_ms[REDIS])",
        "return now_ms()",
        "test_the_slowest_clock_counts_and_one_far_off_stops_the_sale",
    ),
    Guard(
        "Nothing is sold while PostgreSQL's clock is more than a minute off",
        "shared/runtime/clock.py", "        if POSTGRES in self.apart():", "        if False:",
        "test_the_slowest_clock_counts_and_one_far_off_stops_the_sale",
    ),
    Guard(
        "Production refuses secrets that anybody can compute",
        "shared/process/settings.py", "            if weak:", "            if False:",
        "test_production_refuses_development_secrets_in_one_line",
    ),
    Guard(
        "Production refuses cookies without HTTPS",
        "shared/process/settings.py", 'if self.environment == "production" and not self.secure_cookies:', "if False:",
        "test_production_refuses_cookies_without_secure",
    ),
    Guard(
        "A service does not work on an older schema than its own",
        "shared/process/preconditions.py", "        await self.schema.check_at_start()\n", "",
        "test_a_service_refuses_a_schema_older_than_itself",
    ),
    Guard(
        "Transactions see what was committed before their locks",
        "shared/process/preconditions.py", "    if wrong_mode is not None:", "    if False:",
        "test_inventory_neither_starts_nor_is_ready_with_another_isolation_level",
    ),
    Guard(
        "A frame tells which frame it follows, so a lost one is noticed",
        "shared/messaging/lua/publish.lua", "if last then frame =", "if false then frame =",
        "test_each_frame_names_the_frame_before_it_also_from_another_publisher",
    ),
    Guard(
        "The log of frames is bounded and expires",
        "shared/messaging/lua/publish.lua", "redis.call('EXPIRE', log, kept_s)\n", "",
        "test_the_log_of_frames_is_bounded_and_expires",
    ),
    Guard(
        "One mailbox is one customer, however its address is typed",
        "shared/rules/addresses.py", 'name, domain = name.replace(".", ""), "gmail.com"', "pass",
        "test_the_count_is_exact_among_processes",
    ),
    Guard(
        "A disguised address is refused",
        "shared/rules/addresses.py", "    if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):", "    if False:",
        "test_a_disguised_address_is_refused_with_a_reason",
    ),
    Guard(
        "In a currency of three digits only amounts that can be charged are made",
        "shared/rules/currencies.py", "10 if digits(code) == THREE_DIGITS else 1", "1",
        "test_three_digit_amounts_are_rounded_to_what_can_be_charged",
    ),
    Guard(
        "A loop in a pause is woken by what its service writes",
        "shared/concurrency/background.py", "        woken.set()\n", "        pass\n",
        "test_a_loop_in_a_pause_is_woken_by_what_its_service_writes",
    ),
    Guard(
        "What is written while a loop looks wakes it too",
        "shared/concurrency/background.py", "                woken.clear()\n                started_s = clock()\n                try:\n                    found = await work()\n",
        "                started_s = clock()\n                try:\n                    found = await work()\n                    woken.clear()\n",
        "test_what_is_written_while_a_loop_looks_is_not_missed",
    ),
    Guard(
        "An event wakes the relay of its process",
        "shared/messaging/outbox.py", "    wake(source)\n", "",
        "test_an_event_wakes_the_loops_of_its_service",
    ),
    Guard(
        "A relay goes on looking while an event waits for another process",
        "shared/messaging/relay.py", "return None if any(row.cursor != row.last for row in found.values()) else Quiet(QUIET_S)", "return Quiet(QUIET_S)",
        "test_a_relay_is_not_quiet_while_an_event_waits_for_another_process",
    ),
    Guard(
        "A script gets the arguments that its header names, or Redis is not asked",
        "shared/redis/client.py", "if named.keys() != self._names:", "if False:",
        "test_a_call_with_wrong_arguments_is_not_sent",
    ),
)  # fmt: skip
GUARDS = (*TOKEN_GUARDS, *OPERATOR_GUARDS, *CREDENTIAL_GUARDS, *OTHER_GUARDS)
