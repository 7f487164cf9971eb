"""What the look-back accepts is what its database stores, and it costs what its length says: memory,
numbers, encodings, and how one bad record leaves the others alone."""

import base64
import json
import os
import threading
import time
import zlib

import psycopg2
import pytest

from support.api import CONFIG, OPERATE, OPERATOR, SEND, SENDER, decision, start_api
from support.lookback import Case, in_headers
from support.process import wait_for

MIB = 1 << 20


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"ls{zlib.crc32(request.node.nodeid.encode())}")


@pytest.fixture
def make_api(make_relay, topic, tmp_path):
    def make(**settings):
        return start_api(make_relay, tmp_path, SEND, CONFIG.format(topic=topic) + SENDER + OPERATOR, **settings)

    return make


# --- memory ---------------------------------------------------------------------------------------

def flood(length):
    """JSON of as many objects as fit."""
    return b"[" + b"{}," * ((length - 3) // 3) + b"0]"


@pytest.mark.parametrize("around", [
    (b"", b""), (b'{"messages":', b"}"),
    (b'{"version":1,"biz_type":"orders","biz_id":"1","topic":"orders.new","payload":', b"}"),
    (b'{"version":1,"biz_type":"orders","biz_id":"1","topic":"orders.new","payload":1,"headers":', b"}"),
], ids=["a list", "a batch", "a payload", "headers"])
def test_a_body_of_many_values_costs_no_more_memory_than_it_is_long(make_api, around):
    relay, api = make_api()
    assert api.post("commit", decision("0")).status == 202
    before = relay.process.peak_memory()
    body = around[0] + flood(8 * MIB - sum(map(len, around))) + around[1]
    answers, longest = [], 0
    sender = threading.Thread(target=lambda: answers.append(api.post("prepare", body)))
    sender.start()
    while sender.is_alive():
        begun = time.monotonic()
        assert api.post("commit", decision("0")).status == 202
        longest = max(longest, time.monotonic() - begun)
    sender.join()
    assert (answers[0].status, answers[0].code) == (400, "too_complex"), answers[0].text
    assert "1000000 values" in answers[0].json["detail"]
    assert relay.process.peak_memory() - before < 64 * MIB
    assert longest < 1


def test_a_body_that_is_deep_is_refused_with_the_limit(make_api):
    _, api = make_api()
    answer = api.post("prepare", b'{"a":' * 200 + b"1" + b"}" * 200)
    assert (answer.status, answer.code) == (400, "too_complex") and "deep" in answer.json["detail"]


def test_an_order_of_many_values_is_refused(make_api):
    relay, api = make_api()
    before = relay.process.peak_memory()
    answer = api.as_(OPERATE).post("operate", b'{"ids":' + flood(8 * MIB - 10) + b"}")
    assert (answer.status, answer.code) == (400, "too_complex")
    assert relay.process.peak_memory() - before < 64 * MIB


def test_prepares_of_many_values_cost_no_more_memory_by_kafka(case):
    relay = case.relay().wait_ready()
    case.application.prepare("0")
    case.application.commit("0")
    relay.wait_for(lambda: case.ids() == ["0"], what="the first message")
    before = relay.process.peak_memory()
    body = (b'{"version":1,"op":"prepare","biz_type":"order","biz_id":"%d","topic":"%s","payload":'
            % (1, case.topics["orders"].encode()))
    payload = flood(980_000)
    case.application.send(*[(b"order:%d" % number, body.replace(b'"biz_id":"1"', b'"biz_id":"%d"' % number)
                             + payload + b"}", []) for number in range(1, 5)], partition=0)
    case.application.commit(*"1234")
    relay.wait_for(lambda: len(case.records()) == 5, what="all four messages")
    assert [record.payload for record in case.records() if record.key is None] == [payload] * 4
    assert relay.process.peak_memory() - before < 48 * MIB


# --- records that the tables refuse -----------------------------------------------------------------

def test_numbers_of_headers_are_those_that_postgres_takes(make_api, database, chance):
    """The check of the program and jsonb agree, so that nothing is acknowledged and then refused."""
    _, api = make_api()
    texts = ["1e-16383", "1e-16384", "1e-20000", "0e-16384", "0.5e-16382", "0.5e-16383", "0e30000", "-1.5e3"]
    texts += [f"{chance.choice(['', '-'])}{chance.randrange(10 ** 6)}.{'0' * chance.randrange(5)}7e"
              f"{chance.choice(['', '-'])}{chance.choice([chance.randrange(20000), 16383 - chance.randrange(8)])}"
              for _ in range(60)]
    for number, text in enumerate(texts):
        headers = '{"a":' + text + "}"
        stored = valid(database, headers)
        body = ('{"version":1,"biz_type":"orders","biz_id":"%d","topic":"orders.new","payload":1,"headers":%s}'
                % (number, headers))
        assert (api.post("prepare", body.encode()).status == 202) == stored, text


def valid(database, headers):
    try:
        database.execute("SELECT length(%s::jsonb::outbox.message_headers::text)", (headers,))
    except psycopg2.Error:
        return False
    return True


def forbid(database, word):
    """A refusal that the program knows nothing of, and that names a row only by failing."""
    database.execute(f"ALTER TABLE outbox.lookback ADD CONSTRAINT no_{word} CHECK (biz_id NOT LIKE '{word}%')")


def test_what_the_tables_refuse_is_carried_whole_and_its_neighbours_are_stored(case, database):
    forbid(database, "bad")
    relay = case.relay().wait_ready()
    value = bytes(range(256)) * 8
    good = [str(number) for number in range(40)]
    records = [case.application.prepared(id) for id in good]
    records[20:20] = [in_headers("prepare", "order", "bad1", value, [("x", b"\xff\0"), ("y", None), ("x", b"2")],
                                 topic=case.topics["orders"], key=b"k".decode()),
                      case.application.decided("bad1", "commit"), case.application.prepared("bad2")]
    case.application.send(*records, *[case.application.decided(id, "commit") for id in good], partition=0)
    relay.wait_for(lambda: case.ids() == sorted(good), what="all good ones")
    # the commit's prepare is none, and a tombstone of that id is refused as well
    relay.wait_for(lambda: len(case.records("dead")) == 3, what="three dead letters")
    letter = next(record for record in case.records("dead")
                  if record.key == b"order:bad1" and record.payload == value)
    assert [pair for pair in letter.headers if pair[0] in ("x", "y")] == [
        ("x", b"\xff\0"), ("y", None), ("x", b"2")]
    headers = dict(letter.headers)
    assert headers["dead-letter-reason"] == b"not_storable" and b"no_bad" in headers["dead-letter-error"]
    assert "dead-letter-part" not in headers and headers["lookback-op"] == b"prepare"


def test_what_no_row_holds_is_carried_in_parts(case, database):
    database.execute("SELECT outbox.set_max_message_bytes(100000)")
    relay = case.relay().wait_ready()
    value, key = os.urandom(250_000), b"order:" + b"k" * 9000
    many = [(f"h{number}", os.urandom(100)) for number in range(400)]
    sent = [("lookback-version", b"1"), ("outbox-strange", b"\xff"), *many]
    place, = case.application.send((key, value, sent), partition=1)
    relay.wait_for(lambda: len(case.records("dead")) >= 2 and len(case.records("dead")) == int(
        dict(case.records("dead")[0].headers)["dead-letter-part"].split(b"/")[1]), what="all parts")
    letters = sorted(case.records("dead"), key=lambda record: int(
        dict(record.headers)["dead-letter-part"].split(b"/")[0]))
    assert len({(record.partition, record.key) for record in letters}) == 1
    assert all(int(dict(record.headers)["dead-letter-offset"]) == place[1] for record in letters)
    assert dict(letters[0].headers)["dead-letter-left-out"] == b"key payload headers"
    held = {}
    for record in letters[1:]:
        name = dict(record.headers)["dead-letter-holds"]
        held[name] = held.get(name, b"") + record.payload
    assert held[b"payload"] == value and held[b"key"] == key
    pairs = json.loads(held[b"headers"])
    assert [(name, base64.b64decode(text["base64"]) if isinstance(text, dict) else text.encode())
            for name, text in pairs] == sent


def failed_batches(relay):
    return relay.metric("relay_lookback_batches_total", outcome="failed")


def test_a_record_whose_bare_dead_letter_is_refused_waits_in_sight(case, database):
    database.execute(f"ALTER TABLE outbox.message ADD CONSTRAINT none_dead CHECK (topic <> '{case.topics['dead']}')")
    relay = case.relay().wait_ready()
    case.application.send((b"order:1", b"?", []), case.application.prepared("2"), partition=0)
    relay.wait_for(lambda: relay.readiness_says(503, "reader of look-back shop", "none_dead"), what="the refusal")
    case.application.send(case.application.prepared("3"), partition=1)
    case.read_up(relay, 1)  # of another partition
    before = failed_batches(relay)
    time.sleep(3)
    assert failed_batches(relay) - before < 15  # the pause grows up to 5 s
    assert relay.readiness_says(503, "none_dead")
    assert len(relay.events("lookback_reader_waits")) == 1
    assert relay.events("lookback_reader_goes_on") == []
    assert relay.events("lookback_dead_letter") == []  # nothing went there
    for partition in (1, 2):
        case.application.send((b"order:1", b"?", []), partition=partition)
    time.sleep(2)
    assert relay.readiness_says(503, "reader of look-back shop", "none_dead")
    database.execute("ALTER TABLE outbox.message DROP CONSTRAINT none_dead")
    relay.wait_ready()
    case.read_up(relay, 5)
    relay.wait_for(lambda: [record.payload for record in case.records("dead")] == [b"?"] * 3, what="the dead letters")
    assert sorted(int(event["partition"]) for event in relay.events("lookback_dead_letter")) == [0, 1, 2]


def test_a_dead_letter_in_parts_that_the_tables_do_not_name_becomes_bare(case, database):
    """A deferred trigger refuses them only at the end of the transaction."""
    database.execute("""
        CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.headers::text LIKE '%"dead-letter-part"%' THEN
            RAISE EXCEPTION 'no parts' USING errcode = '23514'; END IF; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON outbox.message DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION public.refuse()""")
    relay = case.relay().wait_ready()
    case.application.send((b"order:" + b"k" * 9000, b"?", []), case.application.prepared("2"), partition=0)
    case.read_up(relay, 2)
    relay.wait_for(lambda: case.records("dead"), what="the dead letter")
    letter, = case.records("dead")
    headers = dict(letter.headers)
    assert headers["dead-letter-left-out"] == b"key payload headers" and b"no parts" in headers["dead-letter-error"]


def unstorable(case, id):
    """Its headers hold a number that jsonb refuses."""
    body = ('{"version":1,"op":"prepare","biz_type":"order","biz_id":"%s","topic":"%s","payload":1,'
            '"headers":{"a":1e-20000}}' % (id, case.topics["orders"]))
    return f"order:{id}".encode(), body.encode(), []


# A record that only a table refuses is inserted in a savepoint of its own, which costs about 0.1 ms. No
# record is like that unless somebody adds a constraint to the table.
@pytest.mark.parametrize("by, seconds_per_10_000", [("the program", 1), ("the tables", 3)])
def test_many_bad_records_delay_the_good_ones_by_a_second_at_most(by, seconds_per_10_000, case, database, kafka,
                                                                 make_relay, scale):
    """As many records again are refused; the good ones without them are the measure."""
    count = scale(10_000)
    forbid(database, "bad")

    def seconds(name, bad):
        one = Case(database, kafka, make_relay, name)
        records = []
        for id in [f"{name}{number}" for number in range(count)]:
            records.append(one.application.prepared(id))
            if bad:
                records.append(unstorable(one, f"bad-{id}") if by == "the program" else
                               one.application.prepared(f"bad-{id}"))
        one.application.send(*records)
        relay = one.relay()
        relay.wait_event("lookback_assigned")  # how long a group takes to form is not the matter
        begun = time.monotonic()
        wait_for(lambda: database.execute(
            "SELECT count(*) FROM outbox.lookback WHERE section = 'shop' AND kind = 'prepare'"
            " AND biz_id LIKE %s", (name + "%",)) == [(count,)], 120, "all good ones", 0.02)
        taken = time.monotonic() - begun
        if bad:
            relay.wait_for(lambda: len(one.records("dead")) == count, what="all dead letters")
        relay.stop()
        return taken

    plain, mixed = seconds(case.name + "p", False), seconds(case.name + "m", True)
    print(f"{count} good records: {plain:.2f} s, and among {count} bad ones {mixed:.2f} s")
    assert mixed - plain < seconds_per_10_000, (plain, mixed)
