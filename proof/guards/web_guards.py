"""The guards of the pages' scripts."""

from proof.guards.guard import Guard

CLIENT = "web/fans/onsale.ts"
CODES = "web/fans/hall/seat_codes.js"
STATES = "web/fans/hall/seat_states.js"
LOTTERY = "web/fans/lottery_check.js"
AMOUNTS = "test_a_typed_amount_is_read_with_the_digits_of_its_currency_or_not_at_all"
AGAIN = "test_a_write_without_an_answer_is_sent_again_under_the_same_key"
NOT_AGAIN = "test_what_the_suite_refused_is_not_sent_again"
ORDERED = "test_an_order_names_the_price_that_was_quoted_and_has_the_key_of_its_reservation"
NO_STATE = "test_what_is_no_state_is_refused_alike"
CHECKED = "test_the_pages_own_check_finds_what_is_wrong_with_a_lottery"

SCRIPTS = (
    Guard(
        "A page shows the amount that is charged",
        "web/money.ts", "CURRENCY_DIGITS[currency] ?? 2;", "2;",
        "test_a_page_shows_the_amount_that_is_charged_in_every_currency_and_language",
    ),
    Guard(
        "A refund of 12.345 is no refund of 12,345",
        "web/money.ts", "if (whole === undefined || part.length > digits) return null;", "if (whole === undefined) return null;",
        AMOUNTS,
    ),
    Guard(
        "12,3 of a currency with two digits is 12.30",
        "web/money.ts", 'part.padEnd(digits, "0")', "part",
        AMOUNTS,
    ),
    Guard(
        "A page whose place is near the head asks for its own status",
        CLIENT, "  if (position <= line.near_places) return null;\n", "",
        "test_a_page_asks_for_its_status_where_the_public_line_does_not_tell_it",
    ),
    Guard(
        "A lost answer is no lost order: it is sent again",
        CLIENT, "return this.unknown || this.slug", "return this.slug",
        AGAIN,
    ),
    Guard(
        "What is sent again has the same key, so nothing happens twice",
        CLIENT, '    if (key) headers["Idempotency-Key"] = key;\n', "",
        AGAIN,
    ),
    Guard(
        "A page gives up some time",
        CLIENT, "|| attempt >= patience) throw problem;", ") throw problem;",
        AGAIN,
    ),
    Guard(
        "A refusal is shown, and not sent again",
        CLIENT, "if (!(problem instanceof Problem && problem.passing) ||", "if (!(problem instanceof Problem) ||",
        NOT_AGAIN,
    ),
    Guard(
        "A full line is not pressed by pages that try again",
        CLIENT, '(BUSY.has(this.status) && this.slug !== "line-full")', "BUSY.has(this.status)",
        NOT_AGAIN,
    ),
    Guard(
        "One reservation makes one order, from however many tabs",
        CLIENT, "const key = `${this.checkoutKey}.${held.reservation_id}`;", "const key = freshKey();",
        ORDERED,
    ),
    Guard(
        "A fan is charged what the page showed",
        CLIENT, "const body = { ...named, expected_total_minor: total, currency,", "const body = { ...named, currency,",
        ORDERED,
    ),
    Guard(
        "A browser does not compute for ever",
        CLIENT, "if (!prove || proofs === PROOFS_MAX ||", "if (!prove ||",
        "test_a_browser_solves_three_challenges_at_most",
    ),
    Guard(
        "A state of another hall is not painted over this one",
        CODES, "  if (packed.length !== Math.ceil(seats / 4)) throw new RangeError(`${seats} seats are not ${packed.length} bytes`);\n", "",
        NO_STATE,
    ),
    Guard(
        "A change of a seat that is not there is refused",
        CODES, "    if (seat >= seats) throw new RangeError(`there is no seat ${seat}`);\n", "",
        NO_STATE,
    ),
    Guard(
        "A change that is cut off is refused",
        CODES, '  if (shift > 0) throw new RangeError("the last change is cut off");\n', "",
        NO_STATE,
    ),
    Guard(
        "A lost frame is noticed and healed",
        STATES, "else if (data.after > this.#version) this.ask();\n", "else if (false) this.ask();\n",
        "test_frames_in_any_order_end_in_the_servers_state",
    ),
    Guard(
        "A frame of the whole hall is not read as one of a section",
        STATES, "const shown = data.all ? [[0, this.geometry.count]] : this.#shown;", "const shown = this.#shown;",
        "test_frames_of_the_whole_hall_are_taken_as_such_by_a_page_that_asked_for_sections",
    ),
    Guard(
        "A fan's browser finds another secret than the promised one",
        LOTTERY, "digest === told.commitment", "true",
        CHECKED,
    ),
    Guard(
        "A fan's browser finds a place that was not drawn",
        LOTTERY, ": rank(entry) === told;", ": true;",
        CHECKED,
    ),
    Guard(
        "A fan's browser finds a secret that was chosen after entry opened",
        LOTTERY, "by ? not(before(by, told.committed_at)) : null", "true",
        CHECKED,
    ),
    Guard(
        "A fan's browser finds entrants that were counted after the value was known",
        LOTTERY, "[texts.check_counted, before(told.counted_at, knownAt)", "[texts.check_counted, true",
        CHECKED,
    ),
    Guard(
        "A page makes no markup from what the suite says",
        "web/fans/dom.js", "if (node.textContent !== String(text)) node.textContent = text;", "if (node.textContent !== String(text)) node.innerHTML = text;",
        "test_the_scripts_make_no_markup_from_text",
    ),
)  # fmt: skip
GUARDS = SCRIPTS
