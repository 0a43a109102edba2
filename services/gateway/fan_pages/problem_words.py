"""A problem of the API in the words of a page, by its slug."""

from shared.words.words import Words

OWN_WORDS = {
    "already-extended": "extended_once", "price-changed": "plain_price_changed", "cookies-needed": "plain_cookies",
    "idempotency-key-reused": "order_unknown",
}  # fmt: skip
UNSHOWN = frozenset({"entry-delayed"})


def problem_words(text: Words, slug: str | None) -> str:
    """Empty without a problem, or if the page says it in another way."""
    if slug is None or slug in UNSHOWN:
        return ""
    key = OWN_WORDS.get(slug, f"problem_{slug.replace('-', '_')}")
    return text(key if key in text else "problem_unnamed")
