"""Rules that hold for a user: his messages lie in many partitions, and several processes judge them in a
store that they share."""

import contextlib
import itertools
import random
import threading
import time

import pytest

from support.application import Application
from support.auditor import topic_ranges
from support.dedup import DedupError, Rules
from support.inbox import Effects, Inbox, produce, wait_committed
from support.process import wait_for
from support.redis import Redis, RedisCluster
from support.relay import run_command
from support.sidecar import configuration

PARTITIONS = 12
STORES = ("redis", "cluster", "postgres")


@pytest.fixture(scope="module")
def servers():
    """servers(kind): the line of a store, without its name; each server is started once."""
    lines = {}
    with contextlib.ExitStack() as stack:
        def line(kind):
            if kind not in lines:
                server = stack.enter_context(Redis() if kind == "redis" else RedisCluster())
                lines[kind] = f"redis url={server.url}"
            return lines[kind]

        yield line


@pytest.fixture
def store(servers, request):
    """store(kind): the line of a store of this test's own."""
    def line(kind):
        if kind == "postgres":
            return f'postgres name=push dsn="{request.getfixturevalue("database").dsn}"'
        return f"{servers(kind)} name={request.node.name.replace('[', '-').rstrip(']')}"

    return line


@contextlib.contextmanager
def opened(*words):
    rules = Rules(*words)
    try:
        yield rules
    finally:
        rules.close()


def too_many(times, most, within):
    """The first sequence of more than `most` times that lie in one half-open interval."""
    times = sorted(times)
    return next((times[i:i + most + 1] for i in range(len(times) - most)
                 if times[i + most] - times[i] < within), None)


def most_admitted(times, most, within):
    """How many of these times, which lie in one interval, can pass."""
    assert max(times) - min(times) < within
    return min(most, len(times))


# --- one process ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STORES)
def test_a_shared_store_gives_the_verdicts_of_the_local_one(store, kind, tmp_path, chance, scale):
    lines = ["sliding name=burst most=3 within=10s late=1h key=key action=drop",
             "daily name=quota most=40 zone=Europe/Berlin late=1h key=key action=dead-letter",
             "sliding name=seen most=2 within=1m key=key action=count"]
    now = int(time.time() * 1000) - 3_600_000
    with opened(tmp_path / "local", *lines) as local, opened(store(kind), *lines) as shared:
        for batch in range(scale(200, default=25)):
            messages = [(batch * 50 + i, now + batch * 4000 + chance.randrange(-20_000, 4000),
                         f"k{chance.randrange(6)}") for i in range(50)]
            # some come again
            messages += chance.sample(messages, 5)
            assert shared.check(*messages) == local.check(*messages)


@pytest.mark.parametrize("kind", STORES)
def test_a_message_that_comes_again_is_not_counted_again(store, kind):
    line = "sliding name=burst most=2 within=1h key=key action=drop"
    now = int(time.time() * 1000)
    with opened(store(kind), line) as rules:
        assert rules.check((0, now, "u"), (1, now, "u"), (2, now, "u")) == ["pass", "pass", "drop"]
    with opened(store(kind), line) as rules:  # another process
        assert rules.check((0, now, "u"), (2, now, "u"), (1, now, "u")) == ["again", "drop", "again"]
        # the same place with another time is another message: its topic was made anew
        assert rules.check((0, now + 1, "u")) == ["drop"]
        rules.ask("partition", 1)
        assert rules.check((0, now, "u")) == ["drop"]


@pytest.mark.parametrize("kind", STORES)
def test_a_partition_may_lag_by_late_and_keep(store, kind):
    """The user's later messages of another partition do not make the server forget the earlier ones."""
    line = "sliding name=few most=2 within=1m late=10m key=key action=drop"
    now = int(time.time() * 1000) - 3_600_000
    with opened(f"{store(kind)} keep=30m", line) as rules:
        assert rules.check((0, now, "u"), (1, now + 1, "u")) == ["pass", "pass"]
        rules.ask("partition", 1)
        assert rules.check((0, now + 39 * 60_000, "u")) == ["pass"]
        # another partition, and a consumer that has crashed before it handled what it admitted
        rules.ask("partition", 2)
        assert rules.check((0, now + 2, "u")) == ["drop"]
        rules.ask("partition", 0)
        assert rules.check((0, now, "u"), (1, now + 1, "u")) == ["again", "again"]


@pytest.mark.parametrize("kind", STORES)
def test_a_refused_message_is_recorded_by_no_rule(store, kind):
    lines = ["sliding name=one most=1 within=1h key=key action=drop",
             "sliding name=three most=3 within=1h key=\"topic,key\" action=drop"]
    now = int(time.time() * 1000)
    with opened(store(kind), "user=key", *lines) as rules:
        assert rules.check(*((i, now, "u") for i in range(5))) == ["pass"] + 4 * ["drop"]
    with opened(store(kind), "user=key", lines[1]) as rules:  # has counted one message, and not five
        assert rules.check(*((i, now, "u") for i in range(5, 10))) == ["pass", "pass"] + 3 * ["drop"]


def test_a_cluster_wants_the_user_in_each_key(store):
    lines = ["sliding name=a most=1 within=1h key=\"key,topic\" action=drop",
             "sliding name=b most=1 within=1h key=topic action=drop"]
    for settings in ([], ["user=key"]):
        with pytest.raises(DedupError, match="rule 2: key=\"topic\" does not have the user.*set user"):
            Rules(store("cluster"), *settings, *lines)
    with opened(store("redis"), *lines) as rules:
        assert rules.check((0, 1, "u"), (1, 1, "u")) == ["pass", "drop"]


def test_a_set_is_gone_when_it_no_longer_matters(servers):
    with Redis() as server:
        line = "sliding name=burst most=2 within=1s late=0ms key=key action=drop"
        now = int(time.time() * 1000)
        with opened(f"redis url={server.url} name=push keep=0ms", line) as rules:
            assert rules.check(*((i, now - 5000 + i * 500, "u") for i in range(10))) == 10 * ["pass"]
            key, = (key for key in server.client.keys("push:burst:*"))
            # what is older than `within` is trimmed at once
            assert server.client.zcard(key) == 2
            wait_for(lambda: not server.client.exists(key), 10, "the end of the set")


# --- one user, many partitions and processes -----------------------------------------------------


@pytest.fixture
def wide_topic(kafka, topic):
    yield kafka.create_topic(f"{topic}.wide", partitions=PARTITIONS)
    kafka.delete_topic(f"{topic}.wide")


def at(times, user):
    """(id, key, payload, partition, headers, time) of messages of the user, over all partitions."""
    return [(f"{user}-{i}", f"{user}-{i}", f"text {i}", i % PARTITIONS, [("user", user.encode())], time_ms)
            for i, time_ms in enumerate(times)]


def produce_at(bootstrap, topic, messages):
    for time_ms in sorted({message[5] for message in messages}):
        produce(bootstrap, topic, [m[:5] for m in messages if m[5] == time_ms], timestamp=time_ms)


@pytest.mark.rotated
@pytest.mark.parametrize("kind", STORES)
def test_never_more_than_n_of_a_user_in_any_window(store, kind, kafka, wide_topic, chance, scale):
    """Three processes, one of them is killed; each message of the busy user has one of 100 times."""
    now = int(time.time() * 1000) - 120_000
    count = scale(12_000, default=1200)
    busy = at([now + 1000 * chance.randrange(100) for _ in range(count)], "busy")
    burst = at([now + 50_000 + 100 * (i % 50) for i in range(count // 2)], "burst")
    calm = at([now + 20_000 * i for i in range(5)], "calm")
    produce_at(kafka.bootstrap, wide_topic, busy + burst + calm)
    effects = Effects()
    settings = {"path": None, "dedup": None, "effects": effects.path, "commit_every_ms": 200,
                "rules_store": store(kind), "delay": 1,
                "rules": ["sliding name=few most=5 within=10s key=header:user action=drop"]}
    inboxes = [Inbox(kafka.bootstrap, wide_topic, [wide_topic], **settings) for _ in range(3)]
    try:
        wait_for(lambda: len(effects.all()) >= 3, 60, "the first effects")
        inboxes[0].kill()
        inboxes[0] = Inbox(kafka.bootstrap, wide_topic, [wide_topic], **settings)
        wait_handled(kafka, wide_topic)
    finally:
        for inbox in inboxes:
            inbox.close()
            print("".join(inbox.log[-20:]))
    time_of = {message[0]: message[5] for message in busy + burst + calm}
    passed = {user: [time_of[id] for id in {effect.id for effect in effects.all()}
                     if id.startswith(user)] for user in ("busy", "burst", "calm")}
    assert not too_many(passed["busy"], 5, 10_000)
    # none is refused without a cause: it would exceed the limit beside those that passed
    refused = [message[5] for message in busy if message[5] not in passed["busy"]]
    assert all(too_many(passed["busy"] + [time_ms], 5, 10_000) for time_ms in refused)
    assert len(passed["burst"]) == most_admitted([m[5] for m in burst], 5, 10_000) == 5
    assert len(passed["calm"]) == 5


def wait_handled(kafka, topic):
    ends = {partition: high for (_, partition), (_, high)
            in topic_ranges(kafka.bootstrap, [topic]).items() if high}
    wait_committed(kafka.bootstrap, topic, topic, ends, timeout=120)


# --- the form of push platforms ------------------------------------------------------------------

ARTICLE = '{"deduplication_10":{"num":1,"time":300},"deduplication_20":{"num":5}}'
OLDER = '{"contentDeduplication":{"num":1,"time":300},"frequencyDeduplication":{"num":5}}'


def push(number, user, content, channel):
    return (f"{user}-{number}", f"key-{number}", content, number % 6,
            [("user", user.encode()), ("channel", channel.encode())])


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("rules", [ARTICLE, OLDER], ids=["ten", "content"])
def test_the_json_of_a_push_platform_is_taken_as_it_is(make_sidecar, kafka, topic, store, tmp_path, kind,
                                                       rules):
    """Same user and content: once in 300 s; same user and channel: five a day. In 6 partitions."""
    file = tmp_path / "rules.json"
    file.write_text(rules)
    copies = [push(i, "ann", "hello", f"channel-{i}") for i in range(10)]
    many = [push(i, "bob", f"text {i}", "mail" if i < 10 else "sms") for i in range(20)]
    others = [push(i, f"user-{i}", "hello", "mail") for i in range(10)]
    produce(kafka.bootstrap, topic, copies + many + others)
    with Application() as application:
        relay = make_sidecar(application, rules_file=file, rules_store=store(kind), path=None, dedup="",
                             user="header:user", channel="header:channel")
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total")
                       + relay.metric("relay_deliver_handled_total") == 40)
        passed = [id.rsplit("-", 1)[0] for id in application.ids]
        assert passed.count("ann") == 1 and passed.count("bob") == 10
        assert sum(int(id.split("-")[1]) < 10 for id in application.ids if id.startswith("bob")) == 5
        assert {id for id in passed if id.startswith("user")} == {f"user-{i}" for i in range(10)}


@pytest.mark.parametrize("settings, words", [
    ({"rules_store": "redis name=push"}, "rules_store: url is missing"),
    ({"rules_store": "redis url=ftp://a name=push"}, "rules_store: url"),
    ({"rules_store": "mysql name=push"}, "'mysql' is no store of rules; begin the line with one of: redis, postgres"),
    ({"rules_store": "redis url=redis://127.0.0.1"}, "name is missing"),
    ({"user": "heder:user"}, "rules: user: key is refused at 'heder:user'"),
    ({"rules": "sliding name=a most=10001 within=1s key=key action=drop",
      "rules_store": "redis url=redis://127.0.0.1 name=push"}, "a shared store counts up to 10000"),
    ({"rules": '{"deduplication_10":{"num":1}}', "user": "key"}, "deduplication_10.time\" is missing"),
    ({"rules": ARTICLE}, "user is missing"),
])
def test_a_wrong_setting_is_told_with_the_cure(tmp_path, settings, words):
    file = tmp_path / "relay.ini"
    file.write_text(configuration("127.0.0.1:1", "orders", tmp_path / "state", "http://127.0.0.1:1/",
                                  dict(settings)))
    status, _, error = run_command(["check-config", "--config", str(file)], {})
    assert status == 78 and words in error and "billing" in error and error.count("\n") == 1, error


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_a_batch_that_takes_longer_than_the_timeout_gets_its_verdicts(store, kind):
    """A thousand messages of a user who has a thousand others on both sides: each takes long."""
    line = "sliding name=many most=2000 within=10m late=1d key=key action=drop"
    now = int(time.time() * 1000) - 3_600_000
    around = [(i, now + (i % 2 * 400_000 - 200_000) + i // 2, "u") for i in range(2000)]

    def judge(messages):
        for _ in range(20):
            with contextlib.suppress(DedupError):
                return set(rules.check(*messages))
        return None

    with opened(f"{store(kind)} timeout=100ms", line) as rules:
        for batch in (around[:1000], around[1000:]):
            assert judge(batch) <= {"pass", "again"}
        assert judge([(2000 + i, now, "u") for i in range(1000)]) == {"drop"}


def test_calls_of_the_same_users_do_not_deadlock_while_rows_are_removed(database, scale, chance):
    lines = ["sliding name=few most=3 within=10m key=key action=drop",
             "sliding name=all most=9 within=10m key=\"topic,key\" action=drop"]
    end, judged = time.monotonic() + scale(20, default=4), []

    def judge(partition, keys):
        with opened(f'postgres name=push dsn="{database.dsn}"', *lines) as rules:
            rules.ask("partition", partition)
            for first in itertools.count(step=40):
                if time.monotonic() > end:
                    return judged.append(partition)
                now = int(time.time() * 1000)
                rules.check(*((first + i, now, f"k{keys.randrange(60)}") for i in range(40)))

    threads = [threading.Thread(target=judge, args=(number, random.Random(chance.random())))
               for number in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        # the next call of anybody removes them
        database.execute("update outbox.rule_record set kept_until = '2000-01-01' where ctid = any(array("
                         "select ctid from outbox.rule_record where random() < 0.3 for update skip locked))")
    for thread in threads:
        thread.join()
    assert sorted(judged) == [0, 1, 2, 3]


# --- a server that is away -----------------------------------------------------------------------


def test_messages_wait_for_the_server_and_none_is_lost(kafka, topic):
    produce(kafka.bootstrap, topic, [(f"u-{i}", f"k{i}", "", None, [("user", b"u")]) for i in range(50)])
    effects = Effects()
    with Redis() as server:
        inbox = Inbox(kafka.bootstrap, topic, [topic], effects=effects.path, path=None, dedup=None,
                      commit_every_ms=100, rules_store=f"redis url={server.url} name=push timeout=200ms",
                      rules=["sliding name=few most=5 within=1h key=header:user action=drop"])
        try:
            inbox.wait_stats(handled=5, refused=45)
            server.pause()
            produce(kafka.bootstrap, topic, [(f"v-{i}", f"k{i}", "", None, [("user", b"v")])
                                             for i in range(50)])
            inbox.wait_event("inbox_waits")
            assert inbox.stats()["handled"] == 5
            server.resume()
            inbox.wait_stats(handled=10, refused=90)
            # it comes back without its data: the counts begin anew, and the log says so
            server.kill()
            server.start()
            produce(kafka.bootstrap, topic, [(f"w-{i}", f"k{i}", "", None, [("user", b"v")])
                                             for i in range(50)])
            inbox.wait_event("inbox_begins_again")
            inbox.wait_stats(handled=15, refused=135)
        finally:
            inbox.close()
    assert len({effect.id for effect in effects.all()}) == len(effects.all()) == 15


def test_a_message_that_waited_for_its_id_is_judged(kafka, topic, servers):
    """A consumer took the ids of fifty messages, could not judge them, and was killed."""
    effects = Effects()
    with Redis() as server:
        settings = {"effects": effects.path, "path": None, "commit_every_ms": 100,
                    "dedup": f"{servers('redis')} name={topic}-ids window=1h lease=12s",
                    "rules_store": f"redis url={server.url} name=push timeout=200ms",
                    "rules": ["sliding name=few most=5 within=1h key=header:user action=drop"]}
        first = Inbox(kafka.bootstrap, topic, [topic], **settings)
        try:
            first.wait_event("inbox_assigned")
            server.pause()
            produce(kafka.bootstrap, topic, [(f"u-{i}", f"k{i}", "", None, [("user", b"u")])
                                             for i in range(50)])
            first.wait_event("inbox_waits")
        finally:
            first.kill()
            server.resume()
        second = Inbox(kafka.bootstrap, topic, [topic], **settings)
        try:
            second.wait_stats(handled=5, refused=45)
        finally:
            second.close()
    assert len(effects.all()) == 5


def test_a_consumer_may_start_before_the_server(kafka, topic):
    produce(kafka.bootstrap, topic, [(f"u-{i}", f"k{i}", "", None, [("user", b"u")]) for i in range(20)])
    server = Redis()
    inbox = Inbox(kafka.bootstrap, topic, [topic], effects=Effects().path, path=None, dedup=None,
                  rules_store=f"redis url={server.url} name=push timeout=200ms",
                  rules=["sliding name=few most=5 within=1h key=header:user action=drop"])
    try:
        inbox.wait_event("inbox_waits")
        with server:
            inbox.wait_stats(handled=5, refused=15)
            inbox.close()
    finally:
        inbox.close()


def test_a_message_of_a_retry_topic_is_not_judged_again(kafka, topic, servers):
    retry = kafka.create_topic(f"{topic}.retry", partitions=1)
    # one try more than the attempts of a delivery: a rebalance at the start may repeat the first one
    produce(kafka.bootstrap, topic, [(f"u-{i}", f"k{i}", "retry=3", None, [("user", b"u")])
                                     for i in range(6)])
    inbox = Inbox(kafka.bootstrap, topic, [topic], effects=Effects().path, path=None, dedup=None,
                  commit_every_ms=100, attempts=2,
                  retry_first_ms=1, retry_topics=f"{retry}=100",
                  rules_store=f"{servers('redis')} name={topic}",
                  rules=["sliding name=few most=4 within=1h key=header:user action=drop"])
    try:
        stats = inbox.wait_stats(handled=4, refused=2)
        assert stats["retry_records"] >= 4 and stats["refused"] == 2, stats
    finally:
        inbox.close()
        kafka.delete_topic(retry)
