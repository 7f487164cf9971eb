"""Scheduled messages over the HTTP interface: pages in the order of their times, filters, many of one time."""

import time
from urllib.parse import urlencode

import pytest

from support.api import CALLERS, OPERATE, READ, SEND, caller, shared_api, start_api
from support.process import wait_for
from support.relay import run_command

LIMITED = "token-of-one-with-limits"
MANY = 100_000
# rows as a publisher stores them: ten of each second, every tenth one of topic b
FILL = """INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload, deliver_at, tick)
    SELECT %s, i %% %s, i, now(), outbox.new_event_id(), CASE WHEN i %% 10 = 0 THEN 'b' ELSE 'a' END, convert_to('k' || i %% 100, 'UTF8'),
        'x', timestamptz '2999-01-01' + (i / 10) * interval '1 s', 1 FROM generate_series(1, %s) i"""


@pytest.fixture
def api(make_relay, tmp_path):
    return start_api(make_relay, tmp_path, READ, CALLERS)[1]


def get(api, **arguments):
    return api.request("GET", "/v1/scheduled" + ("?" + urlencode(arguments) if arguments else ""))


def pages_of(api, **arguments):
    """The ids of each page."""
    pages, after = [], {}
    while after is not None:
        answer = get(api, **arguments, **after)
        assert answer.status == 200, answer.text
        pages.append([int(row["id"]) for row in answer.json["rows"]])
        after = answer.json["next"] and {"after": answer.json["next"]}
    return pages


def test_a_relay_shows_what_it_keeps_until_it_is_due(api, database, topic):
    for hours, key in [(3, "late"), (1, "soon"), (2, None)]:
        database.execute("INSERT INTO outbox.message (topic, key, payload, partition, deliver_at)"
                         " VALUES (%s, %s, 'x', %s, now() + %s * interval '1 h')",
                         (topic, key, 0 if key is None else None, hours))
    wait_for(lambda: len(get(api).json["rows"]) == 3, what=lambda: get(api).text)
    answer = get(api).json
    rows = answer["rows"]
    assert [row["key"] for row in rows] == ["soon", None, "late"] and [row["partition"] for row in rows] == [None, 0, None]
    assert (answer["publisher"], answer["source"], answer["next"]) == ("main", "database", None)
    stored = database.execute("SELECT id::text, event_id::text, to_char(deliver_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
                              " FROM outbox.scheduled ORDER BY deliver_at")
    assert [(row["id"], row["event_id"], row["deliver_at"]) for row in rows] == stored
    assert {row["topic"] for row in rows} == {topic} and "payload" not in rows[0]

    # due now: published, and gone
    database.execute("UPDATE outbox.scheduled SET deliver_at = now() WHERE key IS NULL")
    wait_for(lambda: [row["key"] for row in get(api).json["rows"]] == ["soon", "late"], what=lambda: get(api).text)


def test_pages_and_filters_of_many_rows(make_relay, tmp_path, database):
    assert run_command(["publisher", "create", "wide", "--shards", "3"], {"DATABASE_URL": database.dsn})[0] == 0
    _, api = start_api(make_relay, tmp_path, READ, '[publisher "main"]\n[publisher "wide"]\n' + CALLERS
                       + caller("of_wide", LIMITED, "read", publishers="wide"))
    database.execute(FILL, ("wide", 3, 95))
    database.execute(FILL, ("main", 1, 5))
    limited = api.as_(LIMITED)
    assert get(limited, publisher="wide").status == 200 and get(limited, publisher="main").code == "out_of_scope"
    # many rows of one time
    database.execute("UPDATE outbox.scheduled SET deliver_at = '2999-01-01 00:00:02+00' WHERE id BETWEEN 20 AND 69 AND publisher = 'wide'")
    ids = list(range(1, 96))
    assert pages_of(api, publisher="wide", limit=7) == [ids[at:at + 7] for at in range(0, 95, 7)]
    assert pages_of(api, publisher="wide", limit=95) == [ids]
    assert pages_of(api, publisher="wide", limit=94) == [ids[:94], ids[94:]]
    assert pages_of(api, publisher="main") == [ids[:5]]
    for arguments, wanted in [({"topic": "b"}, ids[9::10]), ({"topic": "c"}, []), ({"key": "k12"}, [12]), ({"key": r"\x6b3132"}, [12]),
                              ({"from": "2999-01-01T00:00:09Z"}, ids[89:]), ({"to": "2999-01-01T00:00:01Z"}, ids[:9]),
                              ({"from": "2999-01-01T00:00:01Z", "to": "2999-01-01T00:00:02Z"}, ids[9:19]),
                              ({"from": "2999-01-02"}, []), ({"from": "2999-01-01T00:00:02Z", "topic": "b"}, ids[19::10]),
                              ({"topic": "a", "key": "k10"}, [])]:
        assert sum(pages_of(api, publisher="wide", limit=3, **arguments), []) == wanted, arguments


def test_a_page_is_short_however_many_rows_wait(make_relay, tmp_path, database, scale):
    rows = scale(10 * MANY)
    database.execute(FILL, ("main", 1, rows))
    database.execute("ANALYZE outbox.scheduled")
    _, api = start_api(make_relay, tmp_path, READ, CALLERS)
    assert sum(map(len, pages_of(api, topic="none"))) == 0
    assert len(pages_of(api, topic="none")) == rows // 10_000 + 1
    took = []
    for arguments in [{}, {"topic": "b"}, {"topic": "none"}, {"from": "2999-01-01T01:00:00Z"}, {"limit": 1000}] * 10:
        begun = time.monotonic()
        assert get(api, **arguments).status == 200
        took.append(time.monotonic() - begun)
    print(f"{rows} scheduled rows: p95 {sorted(took)[-3] * 1000:.0f} ms")
    assert sorted(took)[-3] < 1


@pytest.mark.parametrize("query, text", [
    ("after=1", "after=1 is no place in the list"), ("after=x.1", "no place"), ("after=1.x", "no place"), ("after=1.-1", "no place"),
    ("after=1.9223372036854775808", "no place"), ("after=253402300800000000.1", "no place"), ("limit=0", "limit=0"),
    ("limit=1001", "1 to 1000"), ("from=soon", "from: 'soon' is no moment"), ("to=2999-13-01", "to: "), ("topic=a%20b", "no topic's name"),
    ("key=%5Cxf", "not hexadecimal"), ("state=dead", "state is no argument of this path: it takes publisher, topic")])
def test_a_wrong_argument_is_named_with_its_cure(shared, query, text):
    answer = shared.request("GET", f"/v1/scheduled?{query}")
    assert (answer.status, answer.code) == (400, "bad_value") and text in answer.json["detail"], answer.text


def test_only_readers_of_the_publisher_may_look(shared):
    for token, status in [(READ, 200), (OPERATE, 200), (SEND, 403), (None, 401)]:
        assert get(shared.as_(token), publisher="main").status == status
    assert get(shared, publisher="lost").code == "unknown_publisher"


@pytest.fixture(scope="module")
def shared(postgres, kafka, tmp_path_factory):
    """For tests that change nothing."""
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("api"), "scheduled_api", READ) as (_, api):
        yield api
