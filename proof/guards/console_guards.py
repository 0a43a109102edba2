"""The guards of the console."""

from proof.guards.guard import Guard

CONSOLE = "features/console"
APPROVALS = f"{CONSOLE}/approvals.py"
GUARDS = (
    Guard(
        "The link of the start works once",
        f"{CONSOLE}/sign_in.py", "        if was_used:\n", "        if False:\n",
        "test_a_link_signs_the_first_admin_in_once",
    ),
    Guard(
        "Nobody guesses the link of the start",
        f"{CONSOLE}/sign_in.py", "if self._secret is None or not hmac.compare_digest(given, self._secret):", "if self._secret is None:",
        "test_a_link_signs_the_first_admin_in_once",
    ),
    Guard(
        "Without a secret there is no link",
        f"{CONSOLE}/sign_in.py", "if self._secret is None or not hmac.compare_digest(given, self._secret):",
        "if self._secret is not None and not hmac.compare_digest(given, self._secret):",
        "test_without_a_secret_there_is_no_link",
    ),
    Guard(
        "Wrong keys are counted at the console, too",
        f"{CONSOLE}/sign_in.py", "            refusal = self._wrong_keys.refusal(wrong, address)\n", "            refusal = wrong\n",
        "test_wrong_keys_of_an_address_are_limited_and_the_right_one_is_never_refused",
    ),
    Guard(
        "No other site's link sends an operator's cookie along",
        f"{CONSOLE}/sign_in.py", 'same_site="Strict"', 'same_site="Lax"',
        "test_a_key_signs_in_with_a_cookie_that_no_script_reads",
    ),
    Guard(
        "One person cannot decide for two",
        APPROVALS, "        require_second_person(requester, session.holder)\n", "",
        "test_one_person_cannot_decide_for_two_and_a_viewer_for_nobody",
    ),
    Guard(
        "A viewer decides nothing",
        APPROVALS, '        require_role(session.operator, CONTROLS[row["control"]].role)\n', "",
        "test_one_person_cannot_decide_for_two_and_a_viewer_for_nobody",
    ),
    Guard(
        "A request is decided once",
        APPROVALS, '        undecided = *mine, approval.c.status == "pending"\n', "        undecided = mine\n",
        "test_it_is_decided_once_however_many_decide",
    ),
    Guard(
        "An expired request is gone",
        APPROVALS, "approval.c.id == approval_id, approval.c.expires_ms > now_ms()\n", "approval.c.id == approval_id\n",
        "test_what_has_expired_is_gone",
    ),
    Guard(
        "Only the requester sees the approval itself",
        APPROVALS, '    if row["token"] and _is_of(row, reader):', '    if row["token"]:',
        "test_an_approval_is_good_for_exactly_this_request_and_told_to_its_requester_alone",
    ),
    Guard(
        "Only the requester withdraws",
        APPROVALS, "        if not _is_of(row, session.holder):", "        if False:",
        "test_only_the_requester_withdraws",
    ),
    Guard(
        "An event has so many pending requests at most",
        APPROVALS, "pending.scalar_subquery() < PENDING_MAX", "pending.scalar_subquery() >= 0",
        "test_an_event_has_so_many_pending_requests_at_most",
    ),
    Guard(
        "Who asks says why",
        APPROVALS, '    if not (figures.get("reason") or "").strip():', "    if False:",
        "test_what_no_service_would_take_or_nobody_could_judge_is_refused",
    ),
    Guard(
        "A rehearsal moves no real money",
        f"{CONSOLE}/rehearsals.py", "        if offered != {SANDBOX}:", "        if False:",
        "test_it_is_refused_if_money_could_be_real",
    ),
    Guard(
        "One rehearsal runs at a time",
        f"{CONSOLE}/rehearsals.py", "        if not await self._records.mark(event_id, self._process):", "        if await self._records.mark(event_id, self._process) is None:",
        "test_one_runs_at_a_time_whichever_console_is_asked",
    ),
    Guard(
        "A rehearsal ends in time",
        f"{CONSOLE}/rehearsals.py", "elif asyncio.get_running_loop().time() > ends_s:", "elif False:",
        "test_one_that_takes_too_long_is_stopped",
    ),
    Guard(
        "An operator's authority stands in no list of processes",
        f"{CONSOLE}/rehearsals.py", 'env=environment | {"ONSALE_ADMIN_KEY": authority}', 'env=dict(os.environ) | {"ONSALE_ADMIN_KEY": authority}',
        "test_the_operators_authority_is_in_the_environment_alone_and_ends",
    ),
    Guard(
        "A console watches so many events at most",
        f"{CONSOLE}/gathering/registry.py", "            if len(self._gatherers) >= self._settings.events_max:", "            if False:",
        "test_at_most_so_many_events_are_watched",
    ),
    Guard(
        "While nobody watches nothing is asked",
        f"{CONSOLE}/gathering/registry.py", "return [one for one in self._gatherers.values() if one.watchers.count]", "return list(self._gatherers.values())",
        "test_nothing_is_read_while_nobody_watches",
    ),
    Guard(
        "A part that runs without reports is not called silent",
        f"{CONSOLE}/gathering/gatherer.py", "with suppress(NotFound):", "with suppress():",
        "test_a_part_without_reports_is_not_silent_and_its_figures_are_named_as_missing",
    ),
)  # fmt: skip
