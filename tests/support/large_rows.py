"""Rows that are too large for their topic: Kafka refuses them, and a relay parks them."""

from .auditor import payload

LIMIT = 60_000      # of the topic: a batch of small rows fits
TOO_LARGE = 90_000  # characters that lz4 cannot shorten
ONCE = {"publisher_max_attempts": 1, "publisher_retry_first": "100ms"}  # refused once, and a row is dead


def row_of(name, chance):
    """(key, payload) of "k"; "k!" is key k with too large a payload, and a row without a letter has no key."""
    key = name.rstrip("!")
    pad = chance.randbytes(TOO_LARGE // 2).hex() if name != key else "small"
    return key or None, payload(key, 1, pad=pad)
