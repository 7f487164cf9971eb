"""How long each GET of the HTTP interface takes with many parked, scheduled and undecided messages; nothing is published
meanwhile."""

import os
import time

from support import openapi
from support.api import CALLERS, CONFIG, READ, start_api

PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), 'orders', convert_to('k' || i, 'UTF8'), 'x', 0, 'dead', 'too large', 3, now()
    FROM generate_series(1, %s) i"""
SCHEDULE = """INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload, deliver_at, tick)
    SELECT 'main', 0, 10000000 + i, now(), outbox.new_event_id(), 'orders', 'k', 'x', now() + i * interval '1 h', 0
    FROM generate_series(1, %s) i"""
# Nobody reads their partition of the topic, so that nobody asks a business about them.
PREPARE = """WITH made AS (
        INSERT INTO outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset, topic, key, payload,
            check_at, digest, event_id)
        SELECT 'orders', i::text, 'prepare', 'orders', -1, i, 'orders', 'k', 'x', clock_timestamp(), '\\x00', gen_random_uuid()
        FROM generate_series(1, %s) i
        RETURNING section, biz_type, biz_id, prepared_at, check_at)
    INSERT INTO outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, next_check, attempts, last_error)
    SELECT section, biz_type, biz_id, prepared_at, check_at + interval '1 day', 3, 'no answer' FROM made"""
WRITE = """INSERT INTO outbox.message (topic, key, payload) VALUES ('orders', 'k', 'x') RETURNING id, event_id"""
AUDIT = """INSERT INTO outbox.audit (verb, who, reason, target) SELECT 'pause', 'somebody', 'a reason', '{}'
    FROM generate_series(1, %s)"""
PARKED, SCHEDULED, UNDECIDED = 100_000, 100_000, 1_000_000
SLOWEST = 1.0  # on a busy machine; with --full, which is measured alone, 0.2
CALLS = 20
BACKLOG = "outbox.first_bucket(p.shard + 1, p.shards)"  # once in backlogs.sql
# The events are a stream, and the checks of preflight and the letters of Kafka are other systems' times.
NOT_OF_THE_DATABASE = {"/v1/events", "/v1/preflight", "/v1/dead-letters"}


def places(database):
    """Each GET of the description, in its cheapest form, in its longest, and behind many rows."""
    id, event_id = database.execute(WRITE)[0]
    return {
        "/v1/lookback": ["", "?limit=1000", "?state=parked", "?type=orders", "?section=orders&limit=1000",
                         "?totals=yes", "?totals=yes&state=overdue&error=nothing", "?state=undecided&limit=1000&totals=yes"],
        "/v1/lookback/{type}/{id}": ["/orders/77"], "/v1/deliver": ["", "?all=yes"], "/v1/dedup": [""], "/v1/publishers": [""],
        "/v1/publishers/{name}": ["/main"], "/v1/overview": [""], "/v1/series": ["", "?name=relay_in_flight"],
        "/v1/parked": ["", "?limit=1000", "?limit=1000&totals=yes", "?limit=1000&state=dead", f"?limit=1000&after={PARKED // 20}",
                       "?topic=nothing", "?error=large&totals=yes", "?from_id=77&to_id=77"],
        "/v1/parked/{id}": ["/77"], "/v1/partitions": [""],
        "/v1/messages": [f"?id={id}", f"?event_id={event_id}", "?id=77",
                         "?topic=orders&key=k&from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z"],
        "/v1/audit": ["", "?limit=1000"], "/v1/scheduled": ["", "?limit=1000", "?topic=nothing"], "/v1/jobs": ["", "?limit=1000"],
        "/v1/jobs/{id}": ["/77"],  # there is none: the same search
        "/v1/replays": ["", "?limit=1000"],
    }


def p95(api, path):
    took = []
    for _ in range(CALLS):
        begun = time.monotonic()
        with api.connect() as connection:  # without the checks of the support, which take longer
            connection.request("GET", path, headers={"Authorization": f"Bearer {READ}"})
            answer = connection.getresponse()
            assert answer.status in (200, 404) and answer.read(), (path, answer.status, answer.read())
        took.append(time.monotonic() - begun)
    return sorted(took)[CALLS * 95 // 100 - 1]


def test_lists_answer_soon_however_many_rows_wait(make_relay, tmp_path, database, topic, scale, full):
    parked, scheduled, undecided = scale(PARKED, 20_000), scale(SCHEDULED, 20_000), scale(UNDECIDED, 20_000)
    for statement, count in ((PARK, parked), (SCHEDULE, scheduled), (PREPARE, undecided), (AUDIT, parked)):
        database.execute(statement, (count,))
    _, api = start_api(make_relay, tmp_path, READ, CONFIG.format(topic=topic) + CALLERS)
    found = places(database)
    documented = {path for path, item in openapi.document()["paths"].items() if "get" in item and path.startswith("/v1")}
    assert found.keys() | NOT_OF_THE_DATABASE == documented
    database.execute("ANALYZE")
    shown = api.request("GET", "/v1/publishers/main").json
    assert int(shown["parked"]["dead"]) == min(parked, 10_000) and not shown["parked"]["exact"]
    assert int(shown["scheduled"]["rows"]) == min(scheduled, 10_000) and not shown["scheduled"]["exact"]
    late = {}
    for template, ends in found.items():
        for end in ends:
            path = template.partition("/{")[0] + end
            took = p95(api, path)
            print(f"{path}: p95 {took * 1000:.0f} ms")
            if took > (0.2 if full else SLOWEST):
                late[path] = took
    assert not late, f"with {parked} parked, {scheduled} scheduled, {undecided} undecided"


def test_many_shards_are_one_question(make_relay, tmp_path, database, kafka, topic, full):
    """The most shards that a publisher may have, with few and with many unpublished rows. The question is counted in the log of
    the server, since a time says little on a busy machine."""
    database.execute("SELECT outbox.publisher_create('wide', 64, 'beginning')")
    database.execute(f"ALTER DATABASE {database.name} SET log_statement = 'all'")
    relay, api = start_api(make_relay, tmp_path, READ, CONFIG.format(topic=topic) + CALLERS)
    late, written, rows_topic = {}, 0, kafka.create_topic(f"{topic}-rows")
    for rows, exact in ((1000, True), (100_000, False)):
        database.execute("INSERT INTO outbox.message (topic, key) SELECT %s, i::text FROM generate_series(1, %s) i", (rows_topic, rows))
        database.execute("ANALYZE")
        written += rows
        relay.wait_for(lambda: relay.metric("relay_published_total") >= written, what="the rows of main, so that nothing else runs")
        wide, = (line for line in api.request("GET", "/v1/overview").json["publishers"] if line["name"] == "wide")
        assert (wide["shards"], wide["owned"], wide["unpublished_exact"]) == (64, 0, exact)
        assert int(wide["unpublished"]) == written if exact else 10_000 <= int(wide["unpublished"]) <= written
        for path in ("/v1/overview", "/v1/publishers"):
            logged = os.path.getsize(database.postgres.log)
            took = p95(api, path)
            print(f"{path} with 64 shards and {written} unpublished rows: p95 {took * 1000:.0f} ms")
            with open(database.postgres.log, encoding="utf-8", errors="replace") as log:
                log.seek(logged)
                questions = log.read().count(BACKLOG)
            assert CALLS <= questions < 2 * CALLS, (path, questions)  # the upkeep worker puts some, too
            if full and took > 0.2:
                late[path, written] = took
    assert not late
    kafka.delete_topic(rows_topic)
