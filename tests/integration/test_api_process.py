"""GET /v1/overview, /v1/series and /v1/events: what a process knows of itself and of the databases."""

import contextlib
import http.client
import json
import pathlib
import re
import signal
import socket
import time

import pytest
import yaml

from support.api import CALLERS, OPERATE, READ, SEND, caller, start_api
from support.process import wait_for
from support.proxy import Proxy

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITED = caller("limited", "token-of-one-with-limits", "read", publishers="other")
ONE = "token-of-one-with-limits"


@pytest.fixture
def api(make_relay, database, kafka, topic, tmp_path):
    requests = kafka.create_topic(f"{topic}-requests")
    database.execute("SELECT outbox.publisher_create('other', 1, 'now')")
    relay, api = start_api(make_relay, tmp_path, READ, CALLERS + LIMITED + SECTION.format(topic=requests))
    api.relay = relay.wait_ready()
    wait_for(lambda: [line["owned"] for line in get(api, "/v1/overview")["publishers"]] == [1, 1], what="both shards")
    with contextlib.closing(Stream(api, last=f"0@{get(api, '/v1/overview')['process']['name']}")) as events:
        taken = set()
        while len(taken) < 2:  # what the process lost before it said that it had it is no event
            taken.add(events.until("shard")["publisher"])
    yield api
    kafka.delete_topic(requests)


SECTION = """\
[publisher "main"]
[publisher "other"]
[lookback "orders"]
types = orders
topic = {topic}
topics = orders.*
check = shop
[check "shop"]
url = http://127.0.0.1:9/lookback
"""


def get(api, path):
    answer = api.request("GET", path)
    assert answer.status == 200, answer.text
    return answer.json


def publish(database, topic, count):
    for i in range(count):
        database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, 'x')", (topic, str(i)))


# --- the overview ---------------------------------------------------------------------------------

def test_the_overview_has_everything_in_one_line(api, database, topic):
    seen = get(api, "/v1/overview")
    assert seen["process"]["ready"] and seen["process"]["roles"] == ["publisher", "lookback"]
    assert seen["process"]["version"] == "0.1.0" and int(seen["process"]["uptime_s"]) < 120
    assert any("publisher main/0" in line for line in seen["process"]["checks"])
    assert [row["error"] for row in seen["postgres"]] == [None]
    line, other = seen["publishers"]
    assert other["name"] == "other"
    assert (line["name"], line["shards"], line["owned"], line["owners"]) == ("main", 1, 1, [{"name": seen["process"]["name"], "url": None}])
    assert (line["unpublished"], line["unpublished_exact"], line["elsewhere"]) == ("0", True, False)
    assert seen["deliver"] == [] and seen["alerts"] == []


def test_a_paused_topic_is_no_backlog_and_no_fault(make_relay, database, topic, tmp_path):
    relay, api = start_api(make_relay, tmp_path, READ, CALLERS)
    relay.wait_ready()
    order = {"topic": topic, "reason": "the consumers are moved"}
    assert api.as_(OPERATE).request("POST", "/v1/publishers/main/pause", order).status == 200
    relay.wait_for(lambda: relay.metric("relay_paused_topics") == 1, 10, "a paused topic")
    publish(database, topic, 5)

    def line():
        return get(api, "/v1/overview")["publishers"][0]

    wait_for(lambda: line()["parked"]["paused"] == "5" and line()["unpublished"] == "0", 60, lambda: line())
    assert {state: line()["parked"][state] for state in ("waiting", "dead", "stalled", "free", "behind")} == dict.fromkeys(
        ("waiting", "dead", "stalled", "free", "behind"), "0")
    # the rules are judged by the metrics once a second
    wait_for(lambda: relay.metric("relay_parked_rows", state="paused") == 5, 60, "the metric")
    assert [(alert["alert"], alert["severity"]) for alert in get(api, "/v1/overview")["alerts"]] == [("OutboxTopicPaused", "info")]
    assert relay.metric("relay_parked_rows", state="dead") == 0
    assert api.as_(OPERATE).request("POST", "/v1/publishers/main/resume", order).status == 200
    wait_for(lambda: line()["parked"]["paused"] == "0", 60, lambda: line())
    assert get(api, "/v1/overview")["alerts"] == []


def test_a_token_with_limits_sees_its_part_of_the_overview(api):
    seen = get(api.as_(ONE), "/v1/overview")
    assert [line["name"] for line in seen["publishers"]] == ["other"] and seen["process"]["checks"] is None


def test_a_shard_without_owner_is_an_alarm(api, database):
    database.execute("SELECT outbox.publisher_create('third', 2, 'now')")
    seen = get(api, "/v1/overview")
    assert {row["name"]: (row["owned"], row["shards"]) for row in seen["publishers"]
            } == {"main": (1, 1), "other": (1, 1), "third": (0, 2)}
    assert [(alert["alert"], alert["severity"], alert["labels"]["publisher"]) for alert in seen["alerts"]
            ] == [("OutboxPublisherWithoutOwner", "critical", "third")] * 2
    assert get(api.as_(ONE), "/v1/overview")["alerts"] == []


def test_what_operators_paused_is_listed_with_the_time(api, database):
    """Once a publisher, however many shards it has, and also if this process does not run it."""
    database.execute("SELECT outbox.publisher_create('third', 2, 'now')")
    for publisher in ("main", "third"):
        database.execute("SELECT outbox.publisher_pause(%s, true, 'the topics are moved')", (publisher,))
    for topic in ("stock", "orders"):
        database.execute("SELECT outbox.publisher_pause_topic('other', %s, true, 'the consumers are moved')", (topic,))

    def pauses(caller):
        alerts = [alert for alert in get(caller, "/v1/overview")["alerts"] if alert["alert"] != "OutboxPublisherWithoutOwner"]
        assert {(alert["severity"], alert["state"]) for alert in alerts} <= {("info", "firing")}
        return sorted((alert["alert"], *sorted(alert["labels"].items()), alert["since"], alert["text"]) for alert in alerts)

    since = {row[0]: row[1:] for row in database.execute("""SELECT name, to_char(paused_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
        paused_topics ->> 'orders', paused_topics ->> 'stock' FROM outbox.publisher""")}
    topics = [("OutboxTopicPaused", ("publisher", "other"), ("topic", topic), since["other"][i], f"an operator paused topic {topic} of publisher other")
              for i, topic in ((1, "orders"), (2, "stock"))]
    assert pauses(api) == [*(("OutboxPublisherPaused", ("publisher", name), since[name][0], f"an operator paused publisher {name}")
                             for name in ("main", "third")), *topics]
    assert pauses(api.as_(ONE)) == topics
    assert [alert["severity"] for alert in get(api, "/v1/overview")["alerts"]] == ["critical"] * 2 + ["info"] * 4
    for publisher in ("main", "third"):
        database.execute("SELECT outbox.publisher_pause(%s, false, 'they are moved')", (publisher,))
    assert pauses(api) == topics


def test_a_database_that_is_away_is_named(make_relay, tmp_path, database):
    with Proxy(database.postgres.port) as network:
        api = start_api(make_relay, tmp_path, READ, CALLERS,
                        database_url=database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/"))[1]
        network.refuse()
        seen = get(api, "/v1/overview")
        assert "does not answer" in seen["postgres"][0]["error"] and seen["publishers"] == []
        network.heal()
        wait_for(lambda: get(api, "/v1/overview")["publishers"], what="the publisher")


# --- alarms ---------------------------------------------------------------------------------------

def rules_of_prometheus():
    rules = {}
    for group in yaml.safe_load((ROOT / "docs/examples/alerts.yml").read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            words = re.sub(r"\{\{ \$labels\.(\w+) \}\}", r"{\1}", rule["annotations"]["summary"])
            rules[rule["alert"]] = (rule["labels"]["severity"], words.replace("{{ $value }}", "{value}"),
                                    " ".join(rule["expr"].split()), rule.get("for"))
    return rules


def test_the_alarms_are_the_rules_of_prometheus():
    source = (ROOT / "relay/admin/alarms.c").read_text(encoding="utf-8")
    table = source[source.index("rules[] = {"):source.index("enum { RULES")]
    rows = re.findall(r'\{"(\w+)", "(\w+)", ALARM_(\w+), "(relay_\w+)"(.*?)\.words =\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\}', table, re.S)
    known = rules_of_prometheus()
    assert {row[0] for row in rows} == set(known) - {"OutboxNoRelay", "OutboxPublisherWithoutOwner"}
    for name, severity, kind, metric, more, words in rows:
        wanted, summary, expression, delay = known[name]
        assert severity == wanted, name
        assert "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', words)) == summary, name
        assert metric in expression, name
        for other in re.findall(r'"(relay_\w+)"', more):
            assert other in expression, name
        for label, value in re.findall(r'\.label = "(\w+)",\s*\.value = "(\w+)"', more):
            assert f'{label}="{value}"' in expression, name
        limit = re.search(r"\.limit = (\d+)", more)
        assert re.search(rf"[<>=] {limit[1] if limit else 0}\b", expression), name
        seconds = re.search(r"\.seconds = (\d+)", more)
        length = re.search(r"\[(\w+)\]", expression)[1] if kind == "RISES" else delay or "0s"
        assert int(seconds[1] if seconds else 0) == int(length[:-1]) * {"s": 1, "m": 60, "h": 3600}[length[-1]], name


def test_an_alarm_is_pending_until_its_time_is_over(api, database, topic):
    database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, 'k', 'x')", (f"{topic}-missing",))
    wait_for(lambda: len(get(api, "/v1/overview")["alerts"]) == 2, what="the alarms of both publishers")
    alert = get(api, "/v1/overview")["alerts"][0]
    assert (alert["alert"], alert["state"], alert["severity"]) == ("OutboxTopicMissing", "pending", "critical")
    assert alert["labels"]["publisher"] in alert["text"] and alert["value"] == 1
    assert {one["labels"]["publisher"] for one in get(api, "/v1/overview")["alerts"]} == {"main", "other"}


# --- series ---------------------------------------------------------------------------------------

def test_the_series_of_a_rate_has_a_point_a_second(api, database, topic):
    publish(database, topic, 50)

    def counted():
        series = get(api, "/v1/series?name=relay_published_total")["series"]
        return sum(point or 0 for one in series for point in one["points"]) == pytest.approx(100)

    wait_for(counted, what="50 records of each of two publishers")
    shown = get(api, "/v1/series?name=relay_published_total")
    assert (shown["kind"], shown["unit"], shown["step"], len(shown["series"])) == ("rate", "records/s", 1, 2)
    assert shown["source"] == get(api, "/v1/overview")["process"]["name"]
    assert len(shown["series"][0]["points"]) in (900, 901)
    assert {"publisher": "main", "shard": "0"} in [one["labels"] for one in shown["series"]]
    wide = get(api, "/v1/series?name=relay_published_total&step=60")
    assert len(wide["series"][0]["points"]) in (15, 16) and wide["from"].endswith(":00Z")

    latency = get(api, "/v1/series?name=relay_latency_produce_to_ack_seconds")["series"]
    assert {one["labels"]["quantile"] for one in latency} == {"0.5", "0.99"}
    assert any(point is not None and 0 < point < 10 for point in latency[0]["points"])


def test_the_list_of_series_has_units_and_words(api):
    listed = wait_for(lambda: get(api, "/v1/series")["names"] and get(api, "/v1/series"), what="a series")
    assert listed["seconds"] == 900 and listed["left_out"] == 0
    by_name = {row["name"]: row for row in listed["names"]}
    assert by_name["relay_published_total"]["kind"] == "rate" and by_name["relay_published_total"]["series"] == 2
    assert all(row["about"] and row["unit"] for row in listed["names"])


def test_a_token_with_limits_sees_no_series_of_others(api):
    wait_for(lambda: get(api, "/v1/series?name=relay_published_total")["series"], what="the series")
    seen = get(api.as_(ONE), "/v1/series?name=relay_published_total")["series"]
    assert {one["labels"]["publisher"] for one in seen} == {"other"}


WRONG_RANGES = [
    ("name=relay_nothing", "no series is kept of relay_nothing"),
    ("step=5", "need a name"),
    ("name=relay_in_flight&step=0", "step=0 is no whole number from 1 to 900"),
    ("name=relay_in_flight&step=901", "from 1 to 900"),
    ("name=relay_in_flight&from=yesterday", "from:"),
    ("name=relay_in_flight&from=2020-01-01", "by 900 seconds at most"),
    ("name=relay_in_flight&from=2020-01-02&to=2020-01-01", "before to"),
    ("name=relay_in_flight&to=2020-01-01T00:00:00Z&from=2020-01-01T00:00:00Z", "before to"),
]


def test_a_wrong_range_is_refused(api):
    for arguments, words in WRONG_RANGES:
        answer = api.request("GET", "/v1/series?" + arguments)
        assert answer.status in (400, 404, 409) and words in answer.json["detail"], answer.text


def test_a_range_of_long_ago_is_unknown(api):
    wait_for(lambda: get(api, "/v1/series?name=relay_in_flight")["series"], what="the series")
    shown = get(api, "/v1/series?name=relay_in_flight&from=2020-01-01T00:00:00Z&to=2020-01-01T00:00:10Z")
    assert shown["series"][0]["points"] == [None] * 10


# --- events ---------------------------------------------------------------------------------------

class Stream:
    """Events of GET /v1/events: next() is (event, data), (None, comment) for a comment. Heartbeats would go on for ever."""

    def __init__(self, api, token=None, last=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
        headers = {"Authorization": f"Bearer {token or api.token}", **({"Last-Event-ID": last} if last else {})}
        self.connection.request("GET", "/v1/events", headers=headers)
        self.answer = self.connection.getresponse()
        self.id = None
        self.ends = time.monotonic() + 60

    def next(self):
        event = data = comment = None
        while True:
            assert time.monotonic() < self.ends, "the event has not come"
            line = self.answer.readline().decode()
            if not line:
                raise EOFError
            line = line.rstrip("\n")
            if not line and (event or comment):
                return (event, json.loads(data)) if event else (None, comment)
            name, _, value = line.partition(":")
            value = value.lstrip()
            if name == "event":
                event = value
            elif name == "data":
                data = value
            elif name == "id":
                self.id = value
            elif name == "" and value:
                comment = value

    def until(self, wanted):
        while True:
            event, data = self.next()
            if event == wanted:
                return data

    def close(self):
        self.answer.close()
        self.connection.close()


@pytest.fixture
def stream(api):
    with contextlib.ExitStack() as all_streams:
        def opened(**options):
            return all_streams.enter_context(contextlib.closing(Stream(api, **options)))
        yield opened


def lost_shard(events):
    """The next event of a shard that the process lost; it may have got one a moment ago."""
    while (seen := events.until("shard"))["owned"]:
        pass
    return seen


def test_a_lost_shard_is_an_event(api, database, stream):
    events = stream()
    assert events.answer.status == 200 and events.answer.headers["Content-Type"] == "text/event-stream"
    assert events.next() == ("reset", {})
    database.execute("SELECT outbox.publisher_drop('main')")
    lost = lost_shard(events)
    assert (lost["publisher"], lost["shard"]) == ("main", "0")


def test_a_client_that_comes_again_gets_what_it_missed(api, database, stream):
    wait_for(lambda: get(api, "/v1/series")["names"], what="the first second")
    first = stream()
    first.next()
    seen = first.id
    first.close()
    database.execute("SELECT outbox.publisher_drop('main')")
    late = stream(last=seen)
    assert lost_shard(late)["publisher"] == "main" and late.id != seen
    other = stream(last="7@another-process")
    assert other.next() == ("reset", {})
    for wrong in ("nonsense", "99999@" + seen.split("@")[1], "-1@" + seen.split("@")[1]):
        assert stream(last=wrong).next() == ("reset", {})


def test_a_quiet_stream_has_a_heartbeat(api, stream):
    events = stream()
    begun = time.monotonic()
    while events.next() != (None, "heartbeat"):
        pass
    assert 8 < time.monotonic() - begun < 25


def test_events_of_others_are_not_sent(api, database, stream):
    mine, others = stream(), stream(token=ONE)
    others.next()
    database.execute("SELECT outbox.publisher_drop('main')")
    lost_shard(mine)
    while (event := others.next()) != (None, "heartbeat"):
        assert event[1]["publisher"] == "other"  # its shard may have come a moment ago


def test_a_token_has_so_many_streams(api, stream):
    streams = [stream() for _ in range(32)]
    refused = api.request("GET", "/v1/events")
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "too_many_streams", "1")
    assert stream(token=ONE).answer.status == 200
    streams[0].close()
    wait_for(lambda: stream().answer.status == 200, timeout=40, what="the place of the closed stream")


def test_streams_end_with_a_reload_and_with_the_process(api, stream):
    events = stream()
    events.next()
    api.relay.process.send(signal.SIGHUP)
    with pytest.raises(EOFError):
        events.until("nothing")
    events = stream()
    events.next()
    begun = time.monotonic()
    api.relay.stop()
    with pytest.raises(EOFError):
        events.until("nothing")
    assert time.monotonic() - begun < 10


def test_a_client_that_reads_nothing_ends_nothing(api, database, stream):
    """The probes and others' streams go on; the relay's memory does not grow with what is not read."""
    deaf = []
    for _ in range(20):
        link = socket.create_connection(("127.0.0.1", api.port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        link.sendall(f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {READ}\r\n\r\n".encode())
        deaf.append(link)
    events = stream(token=ONE)
    assert events.next() == ("reset", {})
    assert get(api, "/v1/overview")["process"]["ready"]
    for link in deaf:
        link.close()


def test_head_and_roles(api):
    assert api.request("HEAD", "/v1/events").status == 200
    assert api.as_(SEND).request("GET", "/v1/events").status == 403
    assert api.as_("nobody").request("GET", "/v1/events").status == 401
    assert api.request("GET", "/v1/events?x=1").status == 400
