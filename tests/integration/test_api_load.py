"""How long lists take with many parked and scheduled rows; nothing is published meanwhile."""

import time

from support.api import CALLERS, READ, start_api

PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), 'orders', convert_to('k' || i, 'UTF8'), 'x', 0, 'dead', 'too large', 3, now()
    FROM generate_series(1, %s) i"""
SCHEDULE = """INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload, deliver_at, tick)
    SELECT 'main', 0, 10000000 + i, now(), outbox.new_event_id(), 'orders', 'k', 'x', now() + i * interval '1 h', 0
    FROM generate_series(1, %s) i"""
PARKED, WAITING = 100_000, 1_000_000
SLOWEST = 1.0  # on a busy machine; 0.2 s is measured alone
CALLS = 20


def test_lists_answer_soon_however_many_rows_wait(make_relay, tmp_path, database, scale):
    parked, waiting = scale(PARKED, PARKED), scale(WAITING)
    database.execute(PARK, (parked,))
    database.execute(SCHEDULE, (waiting,))
    _, api = start_api(make_relay, tmp_path, READ, CALLERS)
    database.execute("ANALYZE outbox.parked, outbox.scheduled")
    shown = api.request("GET", "/v1/publishers/main").json
    assert int(shown["parked"]["dead"]) == 10_000 and not shown["parked"]["exact"]
    assert int(shown["scheduled"]["rows"]) == 10_000 and not shown["scheduled"]["exact"]
    for path in ("/v1/publishers", "/v1/publishers/main", "/v1/parked", "/v1/parked?limit=1000&state=dead", "/v1/scheduled?limit=1000",
                 "/v1/jobs", "/v1/replays", "/v1/audit"):
        took = []
        for _ in range(CALLS):
            begun = time.monotonic()
            with api.connect() as connection:  # without the checks of the support, which take longer
                connection.request("GET", path, headers={"Authorization": f"Bearer {READ}"})
                answer = connection.getresponse()
                assert answer.status == 200 and answer.read()
            took.append(time.monotonic() - begun)
        p95 = sorted(took)[CALLS * 95 // 100 - 1]
        print(f"{path}: p95 {p95 * 1000:.0f} ms, {parked} parked, {waiting} scheduled")
        assert p95 < SLOWEST, path
