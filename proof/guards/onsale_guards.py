"""The guards of the commands, the server under all services, the sandbox, the client and the middleware of an origin."""

from proof.guards.guard import Guard

REQUESTS = "onsale/server/request_limits.py"
ONE_PORT = "onsale/server/one_port.py"
YAML = "onsale/strict_yaml.py"
MIDDLEWARE = "onsale/middleware.py"
CHARGES = "onsale/sandbox/charges.py"
RESTORE = "onsale/backup/restore.py"
MANIFEST = "onsale/backup/manifest.py"
KEYS = "onsale/maintenance/keys.py"
REFUSED_REQUEST = "test_an_invalid_or_oversized_request_is_refused"
MISREAD = "test_what_means_something_else_is_refused"
ONLY_EMPTY = "test_a_restore_needs_an_empty_database_an_empty_redis_and_no_running_suite"
CHANGED_BACKUP = "test_a_backup_with_a_changed_or_missing_file_is_refused"

SERVER_GUARDS = (
    Guard(
        "An answer that took waiting is one write, too",
        "onsale/server/uvicorn_protocol.py",
        "        elif isinstance(found, Pending):\n",
        "        elif False:\n",
        "test_head_and_body_are_one_write",
    ),
    Guard(
        "The suite is ready when every process knows its events",
        "onsale/local/suite_services.py",
        "        await _wait_for_processes(suite, [], knowing)\n",
        "",
        "test_the_suite_is_ready_when_every_process_knows_the_events",
    ),
    Guard(
        "A head of many megabytes costs no memory",
        REQUESTS,
        "if self._head_bytes >= HEAD_MAX_BYTES:",
        "if False:",
        REFUSED_REQUEST,
    ),
    Guard(
        "A head has a hundred lines at most",
        REQUESTS,
        "if len(self.headers) >= HEAD_LINES_MAX:",
        "if False:",
        REFUSED_REQUEST,
    ),
    Guard(
        "Two hosts in one request do not send a fan's answer elsewhere",
        REQUESTS,
        'if self._hosts != 1 and (self._hosts or version != "1.0"):',
        "if False:",
        REFUSED_REQUEST,
    ),
    Guard(
        "A proxy and the service read the same body",
        REQUESTS,
        'if self._is_chunked or sent.lower() != b"chunked":',
        "if False:",
        REFUSED_REQUEST,
    ),
    Guard(
        "A trailer never becomes a header",
        REQUESTS,
        "        if not self.in_head:\n            return  # a trailer: not used\n",
        "",
        "test_a_trailer_never_becomes_a_header",
    ),
    Guard(
        "A body that the parser would drop is refused",
        REQUESTS,
        "if upgrades and (self._has_length or self._is_chunked):",
        "if False:",
        REFUSED_REQUEST,
    ),
    Guard(
        "A connection that never finishes its request is closed",
        REQUESTS,
        "if now_s - since_s > (HEAD_WITHIN_S if connection.in_head else REQUEST_WITHIN_S):",
        "if False:",
        "test_a_connection_that_does_not_finish_a_request_is_closed",
    ),
    Guard(
        "When descriptors run out, a new fan takes the place of who only holds one",
        REQUESTS,
        "return self._drop_slowest(newcomer) or not is_last",
        "return True",
        "test_incomplete_requests_are_dropped_first_and_idle_connections_next",
    ),
    Guard(
        "Whoever comes when nothing is left is refused at once",
        REQUESTS,
        '        if not self._incomplete.has_room(self, transport.get_extra_info("socket").fileno()):',
        "        if False:",
        "test_a_new_connection_is_refused_at_once_while_all_others_are_being_answered",
    ),
    Guard(
        "A stranger reads no metrics",
        ONE_PORT,
        "if path_in_service in GUARDED and not self._is_operator(scope):",
        "if False:",
        "test_a_stranger_gets_neither_metrics_nor_readiness",
    ),
    Guard(
        "A proxy on the same machine makes nobody an operator",
        ONE_PORT,
        "if peer and ip_address(peer[0]).is_loopback and not passed_on:",
        "if peer and ip_address(peer[0]).is_loopback:",
        "test_a_stranger_gets_neither_metrics_nor_readiness",
    ),
    Guard(
        "A suite is ready when all of it is",
        ONE_PORT,
        'waiting_for = [*await self._reads.get("not ready", self._not_ready), *self._started()]',
        "waiting_for = self._started()",
        "test_the_suite_is_ready_when_its_services_are_and_it_has_started",
    ),
    Guard(
        "A service whose feature is switched off is not started",
        "onsale/server/serve.py",
        "if not _is_off(name, app.state.settings.features_off)}",
        "if app}",
        "test_the_service_of_a_feature_that_is_switched_off_is_left_out",
    ),
    Guard(
        "Metrics of two processes are told apart",
        "onsale/server/serve.py",
        """return f'{name}{{process="{process}",{labels}'""",
        "return f'{name}{{{labels}'",
        "test_metrics_of_several_processes_are_one_text",
    ),
    Guard(
        "Each process knows with how many it shares a limit",
        "onsale/local/suite_services.py",
        'shares = {"ONSALE_PROCESSES": str(suite.processes), ',
        "shares = {",
        "test_processes_share_limits_and_connections",
    ),
    Guard(
        "Processes together take no more connections than PostgreSQL has",
        "onsale/local/suite_services.py",
        "ceil(POOL_MAX / suite.processes))",
        "POOL_MAX)",
        "test_processes_share_limits_and_connections",
    ),
)

FILE_GUARDS = (
    Guard(
        "A power failure leaves no empty file of keys",
        "onsale/atomic_file.py",
        "        os.fsync(descriptor)\n    new.replace(path)",
        "    new.replace(path)",
        "test_the_file_is_on_disk_before_it_is_renamed_and_the_folder_after",
    ),
    Guard(
        "A new name is on disk, too",
        "onsale/atomic_file.py",
        "    fsync_folder(path.parent)\n",
        "",
        "test_the_file_is_on_disk_before_it_is_renamed_and_the_folder_after",
    ),
    Guard(
        "Only its owner reads the key file",
        "onsale/atomic_file.py",
        "os.O_TRUNC, 0o600)",
        "os.O_TRUNC, 0o644)",
        "test_only_the_owner_can_read_the_key_file_and_a_failed_change_leaves_it_as_it_was",
    ),
    Guard(
        "Two commands lose no key",
        "onsale/local/key_file.py",
        "        fcntl.flock(descriptor, fcntl.LOCK_EX)\n",
        "",
        "test_simultaneous_commands_lose_no_key",
    ),
    Guard(
        "A key that still signs is not retired",
        KEYS,
        'if stages[kid] != "retiring":',
        "if False:",
        "test_a_signing_key_is_not_retired_and_any_other_only_with_now",
    ),
    Guard(
        "A key ends early only on purpose",
        KEYS,
        "        if not now:\n            until",
        "        if False:\n            until",
        "test_a_signing_key_is_not_retired_and_any_other_only_with_now",
    ),
    Guard(
        "A field that stands twice in an event file is refused",
        YAML,
        "            if name in first:",
        "            if False:",
        MISREAD,
    ),
    Guard(
        "A name is not cut at its #",
        YAML,
        'if found is None or (found[2][1:2].strip() == "" and (not value or len(found[1]) > 1)):',
        "if True:",
        MISREAD,
    ),
    Guard(
        "A seat label NO is no false",
        YAML,
        "if _YES_OR_NO.fullmatch(text):",
        "if False:",
        MISREAD,
    ),
    Guard(
        "A row 010 is not row 8",
        YAML,
        "if _BASES.fullmatch(text):",
        "if False:",
        MISREAD,
    ),
    Guard(
        "A time is no number to the base of 60",
        YAML,
        "if _SIXTIETHS.fullmatch(text):",
        "if False:",
        MISREAD,
    ),
    Guard(
        "An event file has no anchors that change what it means",
        YAML,
        'in ("&", "!")',
        "in ()",
        MISREAD,
    ),
    Guard(
        "An event file has no fields from elsewhere",
        YAML,
        'if key.style is None and name == "<<":',
        "if False:",
        MISREAD,
    ),
    Guard(
        "A deep event file ends no process",
        YAML,
        "if len(path) > DEPTH_MAX:",
        "if False:",
        "test_a_deep_or_huge_text_is_refused_soon",
    ),
    Guard(
        "An event file sends no other file of the machine as a picture",
        "onsale/event_files.py",
        "if beside.resolve().parent != path.parent.resolve():",
        "if False:",
        "test_a_link_to_another_folder_is_not_followed",
    ),
    Guard(
        "A void ticket does not open the door",
        "onsale/cli/tickets.py",
        'if listed and listed["status"] == "void":',
        "if False:",
        "test_a_ticket_that_the_list_calls_void_is_refused",
    ),
    Guard(
        "A screenshot of a changing code does not open the door",
        "onsale/cli/tickets.py",
        '    require_rotating_code(ticket, unb64(listed["secret"]), code, at_s=time.time())\n',
        "",
        "test_a_rotating_code_needs_the_ticket_list_and_the_current_time",
    ),
)

BACKUP_GUARDS = (
    Guard(
        "A backup is readable by its owner only",
        "onsale/backup/manifest.py",
        "os.O_EXCL, 0o600)",
        "os.O_EXCL, 0o644)",
        "test_only_the_owner_can_read_a_backup",
    ),
    Guard(
        "A backup that failed is not taken for one",
        "onsale/backup/manifest.py",
        "        shutil.rmtree(part, ignore_errors=True)\n        raise",
        "        raise",
        "test_a_backup_that_fails_leaves_no_files",
    ),
    Guard(
        "The newest backup is never removed",
        "onsale/backup/manifest.py",
        "complete_backups(place)[:-1] if _time(path) < oldest",
        "complete_backups(place) if _time(path) < oldest",
        "test_old_backups_are_removed_and_the_newest_stays",
    ),
    Guard(
        "A changed backup is not restored",
        MANIFEST,
        "if found != entry.sha256:",
        "if False:",
        CHANGED_BACKUP,
    ),
    Guard(
        "A manifest names no file outside its backup",
        MANIFEST,
        'pattern=r"^[a-z]+/[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}$"',
        'pattern=r"."',
        CHANGED_BACKUP,
    ),
    Guard(
        "A backup of a newer version is not restored by an older one",
        RESTORE,
        "if schema.revision not in revisions(schema.service):",
        "if False:",
        CHANGED_BACKUP,
    ),
    Guard(
        "A restore never mixes with what is there",
        RESTORE,
        "if await connection.fetchval(HAS_SCHEMA, service):",
        "if False:",
        ONLY_EMPTY,
    ),
    Guard(
        "A restore never happens under a running suite",
        RESTORE,
        "            if await connection.fetchval(RUNNING):\n                raise",
        "            if False:\n                raise",
        ONLY_EMPTY,
    ),
    Guard(
        "A restored suite trusts no fast copy of another time",
        RESTORE,
        "    if found:\n",
        "    if False:\n",
        ONLY_EMPTY,
    ),
    Guard(
        "A restore is whole or leaves nothing",
        RESTORE,
        "        await _drop_schemas(urls)\n        raise",
        "        raise",
        "test_a_restore_that_fails_leaves_the_databases_empty",
    ),
    Guard(
        "A backup with fewer rows than it says is refused",
        RESTORE,
        "if rows != entry.rows:",
        "if False:",
        "test_a_restore_that_fails_leaves_the_databases_empty",
    ),
)

ORIGIN_GUARDS = (
    Guard(
        "A shop believes a webhook by its signature only",
        "onsale/client/webhooks.py",
        'if not any(hmac.compare_digest(f"v1,{expected}".encode(), each.encode()) for each in signed.split(" ")):',
        "if False:",
        "test_what_was_changed_or_is_old_is_refused",
    ),
    Guard(
        "An old webhook cannot be played again to a shop",
        "onsale/client/webhooks.py",
        "if not at.isdecimal() or abs(time.time() - int(at)) > TOLERANCE_S:",
        "if not at.isdecimal():",
        "test_what_was_changed_or_is_old_is_refused",
    ),
    Guard(
        "A pass of another event does not open a site",
        MIDDLEWARE,
        "audience=self._event_id, issuer",
        'audience=jwt.decode(token, options={"verify_signature": False}).get("aud"), issuer',
        "test_a_pass_cannot_choose_its_algorithm_or_change_its_claims",
    ),
    Guard(
        "A token of another kind is no pass at a site",
        MIDDLEWARE,
        'claims.get("typ") == "onsale-pass" and claims["jti"]',
        'claims["jti"]',
        "test_a_pass_cannot_choose_its_algorithm_or_change_its_claims",
    ),
    Guard(
        "A released pass opens nothing more",
        MIDDLEWARE,
        ' and claims["jti"] not in self._released else None',
        " else None",
        "test_a_response_header_releases_the_slot_and_the_pass_is_refused",
    ),
    Guard(
        "Whether a write is sent again is decided by its key",
        "onsale/client/connection.py",
        "self._attempts_max if request.repeatable else 1",
        "self._attempts_max",
        "test_an_operators_write_without_a_key_is_sent_once",
    ),
)

SANDBOX_GUARDS = (
    Guard(
        "The provider charges a key once",
        CHARGES,
        "        known = self.store.charge_of_key(key)\n",
        "        known = None\n",
        "test_an_idempotency_key_returns_the_same_charge_and_refuses_another_body",
    ),
    Guard(
        "The provider refuses another request under the same key",
        CHARGES,
        "    if known != fingerprint:\n",
        "    if False:\n",
        "test_an_idempotency_key_returns_the_same_charge_and_refuses_another_body",
    ),
    Guard(
        "The provider gives back no more than it took",
        CHARGES,
        "if charge.refunded_minor + withdrawn_minor + request.amount_minor > charge.captured_minor:",
        "if False:",
        "test_a_refund_may_fail_once_is_idempotent_and_never_exceeds_the_charge",
    ),
    Guard(
        "A cancelled charge does not succeed later",
        CHARGES,
        '        if charge.succeeds_at_s is not None:\n            self._move(charge, "succeeded")',
        '        self._move(charge, "succeeded")',
        "test_cancelling_a_charge_prevents_its_late_success",
    ),
    Guard(
        "The hosted page applies one choice",
        CHARGES,
        'if charge.status != "requires_action":',
        "if False:",
        "test_the_hosted_page_applies_the_first_choice_only_and_returns_to_the_shop",
    ),
)

GUARDS = (*SERVER_GUARDS, *FILE_GUARDS, *BACKUP_GUARDS, *ORIGIN_GUARDS, *SANDBOX_GUARDS)  # fmt: skip
