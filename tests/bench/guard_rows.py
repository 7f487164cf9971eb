"""What ./run-tests bench measures, one row each. A new bench is a row of KINDS, a new way of handling a record is a row
of INSTRUCTIONS.

INSTRUCTIONS  instructions for a record in one way, as a multiple of another way in the same run. Counts are steady to
              two percent, so a bound is a tenth above the count of the day on which it was written.
KINDS         a kind of outbox-relay-bench in its short form. Its figures are named in order, each with the bound of
              the bench. Behind | is the bound of the guard, for what the bench judges: a ratio, a difference or a
              value. Times of a few runs vary by a third, so these bounds are far. A figure without | must only be
              there and above 0.
"""

import re
from dataclasses import dataclass

import pytest


@dataclass
class Instructions:
    name: str
    way: str  # of instructions.WORKS, behind the rows that it takes
    beside: str
    most: float


INSTRUCTIONS = [
    Instructions("drain, beside its limit", "rows: drain", "rows: limit", 1.38),
    Instructions("drain of rows with two headers, beside rows without", "headers: drain", "rows: drain", 1.5),
    Instructions("exactly-once, beside at-least-once", "once: drain exactly-once", "rows: drain", 1.18),
    Instructions("inbox, beside a bare consumer", "rows: consume none", "rows: consume bare", 3.15),
    Instructions("inbox with bloom, beside a bare consumer", "rows: consume bloom", "rows: consume bare", 3.85),
    Instructions("inbox with sequence, beside a bare consumer", "rows: consume sequence", "rows: consume bare", 4.1),
]

# Names of counts.count_work, and the most that is accepted.
COUNTS = {
    "wakeups a second at rest": 60,
    "wakeups a message at 100/s": 12,
}


@dataclass
class Kind:
    name: str
    options: str
    figures: list
    turn: str = ""        # by default one of the kinds with the same word has its turn; "": always
    others: bool = False  # figures that are not named here may come as well


def codec_figures():
    for codec, bytes_ in (("none", 1.01), ("gzip", 0.25), ("snappy", 0.42), ("lz4", 0.45), ("zstd", 0.25)):
        yield f"drain with {codec}, 300 B"
        yield "CPU of it, a million rows"
        yield f"bytes of it on the broker, a record | <= {bytes_}"


KINDS = [
    Kind("drain", "--rows 50000 --payload 300 --runs 1", [
        figure for headers in ("", ", 2 headers") for figure in (
            f"drain of 50000 rows of 300 B{headers} >= 0.95 | >= 0.5",
            "whole process",
            "CPU of it, a million rows <= 1.4 | <= 2",
            "beside bare records >= 0.8 | >= 0.4",
            "beside bare records, whole process",
            "CPU beside bare records, a million rows <= 1.3 | <= 2.8",
            "headers = none, beside bare records >= 0.9 | >= 0.5",
            "headers = none, beside bare records, whole process",
            "CPU headers = none, beside bare records, a million rows <= 1.3 | <= 2.2")
    ]),
    Kind("exactly-once", "--rows 250000 --payload 300 --runs 1 --seconds 2 --rate 100", [
        "exactly-once of 250000 rows of 300 B >= 0.75 | >= 0.3",
        "CPU of it, a million rows | <= 2.1",
        "exactly-once, commit to consumer at 100/s, p50 | <= 40",
        "exactly-once, commit to consumer at 100/s, p99",
    ], "drain"),
    Kind("held", "--rows 50000 --runs 1", [
        "drain beside a held snapshot and an open write >= 0.95 | >= 0.5",
        "CPU of it, a million rows | <= 1.3",
    ], "drain"),
    Kind("spread", "--rows 20000 --runs 1", [
        "drain to 1 partition, 1 shard | >= 0.5",
        "CPU of it, a million rows | <= 1.3",
        "drain to 48 partitions, 1 shard | >= 0.3",
        "CPU of it, a million rows | <= 2",
    ], "drain"),
    Kind("shards", "--rows 50000 --runs 1", [
        "drain to 6 partitions, 4 shards >= 0.9 | >= 0.4",
        "CPU of it, a million rows | <= 2",
        "drain to 6 partitions, 16 shards >= 0.7 | >= 0.25",
        "CPU of it, a million rows | <= 3",
    ], "drain"),
    Kind("codec", "--rows 10000 --payload 300 --runs 1", list(codec_figures()), "drain"),
    Kind("memory", "--rows 100000 --runs 1", [
        "peak memory, drain of 100000 rows <= 64 | <= 64",
        "peak memory, drain, 4 KB of 6666 rows <= 64 | <= 64",
        "peak memory, one transaction of 100000 rows <= 64 | <= 64",
    ], "drain"),
    Kind("table", "--rows 2000 --published 3000 --parked 500 --scheduled 700 --runs 1", [
        "drain behind 3000 published rows >= 0.95",
        "drain beside 500 parked messages >= 0.95",
        "drain beside 700 scheduled messages >= 0.95",
        "drain beside 50 open transactions >= 0.95",
        "drain in 12 partitions, not 4 >= 0.95",
        "empty look behind 3000 published rows <= 1.5 | <= 2.5",
        "empty look beside 500 parked messages <= 1.5 | <= 2.5",
        "look for what is due beside 500 parked messages <= 1.5 | <= 2.5",
        "empty look beside 700 scheduled messages <= 1.5 | <= 2.5",
        "look for what is due beside 700 scheduled messages <= 1.5 | <= 2.5",
        "empty look beside 50 open transactions <= 1.5 | <= 2.5",
        "empty look in 12 partitions, not 4 <= 3 | <= 5",
    ], "drain"),
    Kind("latency", "--rate 1000 --seconds 4 --runs 1", [
        "commit to consumer at 1000/s, p50 <= 3 | <= 6",
        "commit to consumer at 1000/s, p99 <= 10 | <= 40",
    ], "rate"),
    Kind("steady", "--seconds 2 --runs 1", [
        "CPU at 1000/s, a million messages, relay",
        "CPU at 1000/s, a million messages, sessions",
        "CPU at 1000/s, a million messages, together <= 240 | <= 300",
    ], "rate"),
    Kind("pace", "--rate 100 --seconds 2 --runs 1", [
        "direct at 100/s, p50", "direct at 100/s, CPU a million, broker",
        *(f"{pace} at 100/s, {figure}{bounds.get(figure, '')}"
          for pace, bounds in (("latency", {"p50": " <= 1.5 | <= 6", "p99": " <= 5 | <= 40"}),
                               ("balanced", {"p50": " <= 2.5 | <= 8"}), ("economy", {"p50": " <= 30 | <= 60"}))
          for figure in ("p50", "p99", *(f"CPU a million, {part}" for part in (
              "relay", "sessions", "broker", "together")))),
    ], "rate"),
    Kind("idle", "--idle-seconds 4", [
        "idle without the doorbell, its sessions",
        "idle without the doorbell, with its sessions <= 1 | <= 2",
        "first message after idleness, without <= 100 | <= 200",
        "idle, its sessions",
        "idle, relay and its sessions <= 0.2 | <= 0.5",
        "first message after idleness <= 50 | <= 150",
    ], "rate"),
    Kind("writer", "--seconds 1 --runs 1", [
        "writer with outbox.publish, beside a plain table >= 0.8 | >= 0.5",
        "writer without a unique key, beside a function that takes none >= 0.98 | >= 0.7",
        "writer with a unique key, beside one without >= 0.5 | >= 0.3",
    ], "rate"),
    Kind("doorbell", "--seconds 1 --runs 1", [
        f"writer, {connections}, relay {state}"
        for connections in ("1 connection", "8 connections", "64 connections")
        for state in ("awake >= 0.97 | >= 0.7", "asleep | >= 0.5")], "rate"),
    Kind("burst", "--connections 20 --runs 1", [
        "burst of 20 connections, a writer's p50",
        "burst of 20 connections, a writer's p99.9 <= 50 | <= 100",
    ], "rate"),
    Kind("growth", "--topics 100 --parked 3000 --open-topics 50 --seconds 2 --runs 1", [
        "take-over, 100 topics known <= 100",
        "tick, 100 topics known <= 100",
        "tick that folds, 100 topics known <= 100",
        "due rows listed, 20000 rows of the far future >= 0.9 | >= 0.4",
        "parked rows listed, 8192 bytes of a key",
        "p99 of healthy messages, 3000 skipped <= 100 | <= 300",
        "p99 of healthy messages, 3000 retried <= 100 | <= 300",
        "p99 of healthy messages, 3000 recovered <= 100 | <= 300",
        "start to first message, 3000 messages parked <= 10000 | <= 10000",
        "peak memory, 3000 messages parked <= 64 | <= 64",
        "messages parked, 8192 random bytes of a key",
        "peak memory, 50 topics in use, 1 partition each <= 64 | <= 10",
    ], "long"),
    Kind("archive", "--rows 20000 --runs 1", [
        "the disk of TMPDIR, written and made durable",
        "archive, payloads of 300 bytes >= 100 | >= 20",
        "restore, payloads of 300 bytes",
        "archive, payloads of 4096 bytes >= 100 | >= 40",
        "restore, payloads of 4096 bytes",
    ], "drain"),
    Kind("lookback", "--pairs 2000 --overdue 500 --undecided 3000 --seconds 2 --rate 100 --runs 1", [
        "look-back, prepare and commit >= 10000 | >= 3000",
        "of them at least a second apart >= 50",
        "CPU of it, a million pairs, relay",
        "CPU of it, a million pairs, sessions",
        "beside 3000 undecided prepares >= 0.95",
        "peak memory beside them <= 96 | <= 96",
        "decision to consumer at 100/s, p50 <= 10 | <= 20",
        "decision to consumer at 100/s, p99",
        "from its sending, linger 5 ms, p50",
        "overdue ones resolved singly >= 3000 | >= 1000",
        "overdue ones resolved 100 in a request >= 10000 | >= 2500",
        "CPU of a million look-backs, gRPC beside HTTP <= 1.2 | <= 2",
    ], "long"),
    Kind("inbox", "--messages 20000 --runs 1 --redis REDIS --dsn DSN", [
        "inbox without dedup, beside a bare consumer >= 0.9",
        "inbox with bloom, beside a bare consumer >= 0.7",
        "inbox with sequence, beside a bare consumer >= 0.8",
        "handlers of 5 ms, 256 at once, beside what is possible >= 0.9 | >= 0.6",
        "memory of an inbox, besides its files <= 64 | <= 64",
        "handlers of 5 ms, 16 at once, with claims in Redis >= 0.5 | >= 0.5",
        "handlers of 5 ms, 256 at once, with claims in Redis",
        "handlers of 5 ms, 16 at once, with claims in PostgreSQL >= 0.5 | >= 0.5",
        "handlers of 5 ms, 256 at once, with claims in PostgreSQL",
        "handlers of 5 ms, 16 at once, reported to PostgreSQL >= 0.9 | >= 0.6",
        "handlers of 5 ms, 256 at once, reported to PostgreSQL",
        "sidecar, beside a bare loop of libcurl >= 0.75 | >= 0.3",
        "sidecar in batches of 100, beside single messages >= 5 | >= 2.5",
        "ab, against the same server",
    ], "long"),
    Kind("dedup", "--ids 100000 --runs 1 --redis REDIS --redis-cluster CLUSTER --dsn DSN", [
        "redis: new ids checked, beside SETs of redis-benchmark >= 0.5 | >= 0.15",
        "redis: ids made done, beside SETs of redis-benchmark >= 0.5 | >= 0.15",
        "redis: commands of both, beside SETs of redis-benchmark >= 0.5 | >= 0.15",
        *(f"{form}: {what} in a cluster, beside one server >= 0.7 | >= 0.3"
          for form in ("redis", "redis form=bitmap") for what in ("commands of both", "copies checked")),
        *(f"postgres: {batch} taken in a transaction, beside an insert >= 0.2 | >= 0.1"
          for batch in (1, 10, 100, 1000)),
        "filter at 1 %, an id <= 18 | <= 18",
        "filter at 0.1 %, an id <= 27 | <= 27",
        "window, 1 M ids in 6 slices, beside 6 reads <= 1.3 | <= 1.3",
        "restart after kill -9 <= 100 | <= 300",
        "exact: memory, an id <= 40 | <= 40",
    ], "long", others=True),
    Kind("rules", "--ids 100000 --runs 1 --redis REDIS --redis-cluster CLUSTER --dsn DSN", [
        "rules in Redis: messages judged >= 20000 | >= 8000",
        "rules in a Redis Cluster: messages judged >= 5000 | >= 5000",
        "rules in PostgreSQL: messages judged",
        "rules in a folder: messages judged | >= 300000",
    ], "long"),
]

FIGURE = re.compile(r"(?P<shown>.+?)(?: \| (?P<relation>[<>]=) (?P<bound>\S+))?")


def described(figure):
    bound = {"at most": "<=", "at least": ">="}.get(figure.get("bound"))
    return figure["name"] + (f" {bound} {figure['bound_value']:g}" if bound else "")


def named(kind, figures):
    """[(its row, the figure)]; KeyError: a row that no figure belongs to."""
    parsed = [FIGURE.fullmatch(row) for row in kind.figures]
    if not kind.others:
        assert [described(figure) for figure in figures] == [row["shown"] for row in parsed]
        return list(zip(parsed, figures))
    found = {described(figure): figure for figure in figures}
    return [(row, found[row["shown"]]) for row in parsed]


def judged(figure):
    """The number that a bound is for."""
    return next(figure[name] for name in ("ratio", "difference", "value") if name in figure)


def is_within(value, relation, bound):
    return value <= bound if relation == "<=" else value >= bound


def beyond(kind, figures):
    """[(name, what was measured, the bound)] of the figures that are beyond a bound of the guard."""
    return [(figure["name"], judged(figure), f"{row['relation']} {row['bound']}")
            for row, figure in named(kind, figures)
            if row["relation"] and not is_within(judged(figure), row["relation"], float(row["bound"]))]


def in_turns(kinds):
    return [pytest.param(kind, id=kind.name, marks=[pytest.mark.rotated(kind.turn)] if kind.turn else [])
            for kind in kinds]
