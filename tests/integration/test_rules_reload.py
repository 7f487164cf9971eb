"""Rules are changed while they judge: by SIGHUP, by `rules reload`, and by the library. No count is lost,
and a wrong file changes nothing and says where it is wrong."""

import collections
import re
import signal
import time

import pytest

from support.application import Application
from support.dedup import DedupError, Rules
from support.files import replace
from support.inbox import produce
from support.process import free_port
from support.redis import Redis
from support.relay import run_command
from support.sidecar import configuration

QUOTA = "sliding name=quota most={most} within={within} late=1d key={key} action=drop"


@pytest.fixture(scope="module")
def server():
    with Redis() as redis:
        yield redis


@pytest.fixture(params=["folder", "redis", "postgres"])
def place(request, tmp_path):
    """What the records of the rules are kept in: a path, or the line of a store."""
    if request.param == "folder":
        return tmp_path / "rules"
    if request.param == "postgres":
        return f'postgres name=reload dsn="{request.getfixturevalue("database").dsn}"'
    redis = request.getfixturevalue("server")
    redis.client.flushall()
    return f"redis url={redis.url} name=reload"


# --- the library ---------------------------------------------------------------------------------


class Model:
    """Rules as simply as can be: {name: (key of the records, most, within), and when a key passed}."""

    def __init__(self):
        self.rules, self.records = {}, collections.defaultdict(list)

    def change(self, rules):
        kept = {(name, key) for name, (key, _, _) in rules.items()}
        self.records = collections.defaultdict(list, {
            place: times for place, times in self.records.items() if place[:2] in kept})
        self.rules = rules

    def judge(self, time_ms, user):
        places = [((name, key, user), most, within) for name, (key, most, within) in self.rules.items()]
        for place, most, within in places:
            if len([at for at in self.records[place] if time_ms - within < at <= time_ms]) >= most:
                return "drop"
        for place, _, _ in places:
            self.records[place].append(time_ms)
        return "pass"


def lines_of(rules):
    return [QUOTA.format(most=most, within=f"{within}ms", key=key).replace("name=quota", f"name={name}")
            for name, (key, most, within) in rules.items()]


def test_a_hundred_changes_keep_each_count(place, chance, scale):
    """The rule `quota` keeps its key, but not its numbers, nor its place among the lines; a rule
    beside it has another name each time and begins anew."""
    model, now, offset, round = Model(), int(time.time() * 1000) - 7_200_000, 0, 0
    rules = {"quota": ("key", 5, 60_000)}
    model.change(rules)
    driver = Rules(place, *lines_of(rules))
    for round in range(100):
        batch = []
        for _ in range(scale(100, default=20)):
            now += chance.randrange(1000)
            batch.append((offset, now, f"k{chance.randrange(5)}"))
            offset += 1
        assert driver.check(*batch) == [model.judge(at, user) for _, at, user in batch], round
        # so short, 1 s, that its records lie in another log, up to 2 h, which is another one
        rules = {"quota": ("key", chance.randrange(3, 9), chance.choice([60_000, 3_600_000, 7_200_000]))}
        if chance.random() < 0.5:
            other = {f"other-{round}": ("key,topic", chance.randrange(3, 9), 60_000)}
            rules = {**other, **rules} if chance.random() < 0.5 else {**rules, **other}
        model.change(rules)
        assert driver.ask("change", "\t".join(lines_of(rules))) == "ok"
        if round % 10 == 0 and "name=" not in str(place):
            driver.checkpoint()
            driver.kill()
            driver = Rules(place, *lines_of(rules))
    driver.close()


def test_a_wrong_line_changes_nothing(place):
    rules = {"quota": ("key", 3, 3_600_000)}
    now = int(time.time() * 1000)
    driver = Rules(place, *lines_of(rules))
    assert driver.check((0, now, "u"), (1, now, "u")) == ["pass", "pass"]
    for wrong, words in (("sliding name=quota most=0 within=1h key=key action=drop", "rule 2: most '0'"),
                         (QUOTA.format(most=9, within="1h", key="key"), "name=quota is also the name of"),
                         ('{"deduplication_10":{"num":1,"time":300}}', "user is missing")):
        with pytest.raises(DedupError, match=words):
            driver.ask("change", "\t".join([QUOTA.format(most=9, within="1h", key="key"), wrong]))
    assert driver.check((2, now, "u"), (3, now, "u")) == ["pass", "drop"]
    driver.close()


# --- the sidecar ---------------------------------------------------------------------------------


def write(path, *lines):
    replace(path, *(f"{line}\n" for line in lines))


def of_users(count, first=0, users=4):
    return [(f"u{(first + i) % users}-{first + i}", f"k{first + i}", "{}", None,
             [("user", f"u{(first + i) % users}".encode())]) for i in range(count)]


def passed(application):
    return collections.Counter(id.split("-")[0] for id in application.ids)


def test_a_hundred_reloads_under_load_lose_no_count(make_sidecar, kafka, topic, place, tmp_path, scale):
    """Four users have a quota of 200 each, in all partitions with a server, else in each of 6."""
    file, shared = tmp_path / "rules.txt", "name=" in str(place)
    most, partitions = scale(2000, default=200), 1 if shared else 6
    quota = QUOTA.format(most=most, within="1h", key="header:user")
    write(file, "# rules of a test", quota)
    store = {"rules_store": place} if shared else {}
    with Application() as application:
        relay = make_sidecar(application, rules_file=file, dedup="", concurrency=200, form="batch",
                             batch=50, **store)
        for round in range(100):
            produce(kafka.bootstrap, topic, of_users(most // 2, first=round * most // 2))
            other = QUOTA.format(most=10**4, within=f"{1 + round % 3 * 100}m", key="topic,header:user")
            other = other.replace("name=quota", f"name=other-{round % 2}")
            write(file, *([other, quota] if round % 3 else [quota, other] if round % 2 else [quota]))
            relay.process.send(signal.SIGHUP)
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total")
                       + relay.metric("relay_deliver_handled_total") == 50 * most, timeout=120)
        relay.wait_for(lambda: len(relay.events("reloaded")) >= 10)
        assert not relay.events("reload_refused")
        found = passed(application)
        assert all(count <= most * partitions for count in found.values())
        # a user sends 12.5 quotas: each partition gets more than one
        assert found == collections.Counter({f"u{i}": most * partitions for i in range(4)})


@pytest.mark.parametrize("with_server", [False, True], ids=["folder", "redis"])
def test_rules_come_to_a_section_without_any_and_leave_it(make_sidecar, kafka, topic, tmp_path, server,
                                                          with_server):
    file = tmp_path / "rules.txt"
    write(file, "# none yet")
    store = {"rules_store": f"redis url={server.url} name={topic}"} if with_server else {}

    def send(first):
        produce(kafka.bootstrap, topic, [(f"id-{first + i}", f"k{first + i}", "{}", 0) for i in range(10)])

    def counts():
        return [relay.metric(f"relay_deliver_{name}_total") for name in ("handled", "refused")]

    def reload(number, *lines):
        write(file, *lines)
        relay.process.send(signal.SIGHUP)
        relay.wait_for(lambda: len(relay.events("inbox_rules_changed")) == number)

    with Application() as application:
        relay = make_sidecar(application, rules_file=file, **store)
        send(0)
        relay.wait_for(lambda: counts() == [10, 0])
        reload(1, QUOTA.format(most=3, within="1h", key="topic"))
        relay.wait_for(lambda: len(relay.events("inbox_assigned")) == 2)
        send(10)
        relay.wait_for(lambda: counts() == [13, 7])
        reload(2, "# none")
        send(20)
        relay.wait_for(lambda: counts() == [23, 7])


WRONG = [
    (["sliding name=a most=1 within=1s key=key action=drop", "", "# more",
      "sliding name=b most=1 within=1s key=jsn:$.a action=drop"],
     "rules.txt:4: .*rule 2: key is refused at 'jsn:.*it is a list of topic"),
    (['{"deduplication_10":{"num":1,"time":300},', '"deduplication_30":{"num":5}}'],
     'rules.txt: .*member "deduplication_30" is no rule; there are deduplication_10'),
    (['{', '"deduplication_20":{"num":5', ''], "rules.txt: .*line 2, column 27: .*write for example"),
    (['{"deduplication_20":{"num":5}}'], "rules.txt: .*user is missing: .*user = header:user"),
    (["# push", "", "{", '"deduplication_20":{"num":5', ""], "rules.txt: .*line 4, column 27: "),
    # as a write to a full disk leaves it: all limits would end
    ([""], "rules.txt is empty, .*write the comment # none"),
]


@pytest.mark.parametrize("lines, words", WRONG,
                         ids=["line", "member", "syntax", "user", "syntax-behind-a-comment", "empty"])
def test_a_broken_file_changes_nothing_and_says_where(make_sidecar, kafka, topic, tmp_path, lines, words):
    file = tmp_path / "rules.txt"
    write(file, QUOTA.format(most=2, within="1h", key="topic"))
    with Application() as application:
        relay = make_sidecar(application, rules_file=file)
        produce(kafka.bootstrap, topic, [(f"id-{i}", "k", "{}", 0) for i in range(1)])
        application.wait_ids({"id-0"})
        write(file, *lines)
        relay.process.send(signal.SIGHUP)
        refused, = relay.wait_for(lambda: relay.events("reload_refused"))
        assert re.search(words, refused["error"]), refused["error"]
        assert "stays as it was" in refused["consequence"]
        produce(kafka.bootstrap, topic, [(f"id-{i}", "k", "{}", 0) for i in range(1, 5)])
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total") == 3)
        assert application.ids == ["id-0", "id-1"]


@pytest.mark.parametrize("store, wrong, words", [
    ("redis url=redis://127.0.0.1 name=push", "most=10001 within=1h key=key", "rule 2: most is 10001"),
    ("redis url=redis://127.0.0.1:1,127.0.0.1:2 name=push", "most=1 within=1h key=topic",
     'rule 2: key="topic" does not have the user: .*in the key of each rule'),
])
def test_a_rule_that_the_store_cannot_judge_is_told_with_its_line(tmp_path, store, wrong, words):
    rules, file = tmp_path / "rules.txt", tmp_path / "relay.ini"
    file.write_text(configuration("127.0.0.1:1", "orders", tmp_path / "state", "http://127.0.0.1:1/",
                                  {"rules_file": rules, "rules_store": store, "user": "header:user"}))
    good = "sliding name={} most=1 within=1h key=\"topic,header:user\" action=drop"
    write(rules, "# push", good.format("a"), f"sliding name=b {wrong} action=drop".replace(
        "key=key", "key=header:user"), good.format("c"))
    status, _, error = run_command(["rules", "check", "--config", str(file)], {})
    assert status == 78 and re.search(f"rules.txt:3: .*{words}", error), error
    write(rules, "# push", good.format("a"), good.format("c"))
    assert run_command(["rules", "check", "--config", str(file)], {})[0] == 0


def test_json_may_stand_behind_comments_and_other_rules(tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text("\ufeff# push\n{\n\"deduplication_10\": {\"num\": 1, \"time\": 300}\n}\n"
                     "sliding name=a most=1 within=1h key=key action=drop\n"
                     '{"deduplication_20":{"num":5}}\n', encoding="utf-8")
    status, out, error = run_command(["rules", "check", str(rules)], {})
    assert (status, error) == (0, "")
    assert re.findall(r"^  (\S+):", out, re.M) == ["deduplication_10", "a", "deduplication_20"]


def test_rules_check_and_reload(make_sidecar, kafka, topic, tmp_path, server):
    file = tmp_path / "rules.json"
    write(file, '{"deduplication_20":{"num":1}}')
    api = {"api_listen": free_port()}
    with Application() as application:
        relay = make_sidecar(application, rules_file=file, user="header:user", environment=api,
                             rules_store=f"redis url={server.url} name={topic}")
        produce(kafka.bootstrap, topic, of_users(6, users=1))
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total") == 5)

        def command(*words):
            return run_command(["rules", *words], relay.settings)

        code, out, error = command("check")
        assert (code, error) == (0, "") and "deduplication_20: daily, at most 1 messages of " \
            "header:user,topic, then drop" in out
        write(file, '{"deduplication_20":{"num":2,"nun":3}}')
        for words in (["check", "--section", "billing"], ["check", str(file)], ["reload"]):
            code, _, error = command(*words)
            assert code and "rules.json" in error, error
            assert 'member "deduplication_20.nun" is unknown; there is num' in error, error
            assert error.count("\n") == 1
        write(file, '{"frequencyDeduplication":{"num":3}}')
        assert command("reload", "--section", "billing") == (
            0, "deliver billing has the rules of its file now\n", "")
        relay.wait_for(lambda: relay.events("inbox_rules_changed"))
        produce(kafka.bootstrap, topic, of_users(6, first=6, users=1))
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total") == 9)
        assert len(application.ids) == 3
        code, _, error = command("reload", "--section", "nobody")
        assert code and "no such [deliver] section" in error
