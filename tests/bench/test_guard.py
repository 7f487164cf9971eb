"""Every kind of outbox-relay-bench in its short form, and instructions for a record: guard_rows.py has the rows.

A kind runs to its end, gives its figures in order and removes what it made. What is beyond a bound of the guard is
measured again: it fails if it is beyond it three times, since no cost of ours comes and goes.
"""

import json
import subprocess

import pytest
from confluent_kafka.admin import AdminClient

from bench import guard_rows as rows
from bench.counts import count_work
from bench.instructions import Counter, Place
from support.process import wait_for
from support.redis import Redis, RedisCluster
from support.relay import bench_binary, binary, run_command

TRIES = 3
MAY_BE_ZERO = ("ms", "%", "% core")  # of such a short form


def until_within(measure):
    """measure() returns what is beyond a bound; [] as soon as a try finds nothing."""
    tries = []
    while len(tries) < TRIES:
        tries.append(measure())
        if not tries[-1]:
            return []
    return tries


@pytest.fixture(scope="module")
def make_counter(postgres, migrated, kafka, tmp_path_factory):
    return lambda **settings: Counter(lambda count, headers: Place(postgres, migrated(), kafka, count, headers),
                                      tmp_path_factory.mktemp("instructions"), settings)


@pytest.fixture(scope="module")
def counter(make_counter):
    return make_counter()


@pytest.mark.parametrize("row", rows.INSTRUCTIONS, ids=lambda row: row.name)
def test_instructions_of_a_record(counter, row):
    way, beside = counter.record(row.way), counter.record(row.beside)
    print(f"{way:.0f} : {beside:.0f} = {way / beside:.3f}")
    assert way / beside <= row.most


# Every row of a COPY costs the relay TURNS more turns of a loop, of about 7 instructions each.
SLOWER = """
#define _GNU_SOURCE
#include <dlfcn.h>

int PQgetCopyData(void *pg, char **row, int async)
{
	static int (*usual)(void *, char **, int);

	if (!usual)
		usual = (int (*)(void *, char **, int))dlsym(RTLD_NEXT, "PQgetCopyData");
	for (volatile int i = 0; i < TURNS; i++)
		;
	return usual(pg, row, async);
}
"""


@pytest.mark.rotated("rest")
def test_a_relay_that_costs_a_fifth_more_is_seen(counter, make_counter, tmp_path):
    (tmp_path / "slower.c").write_text(SLOWER)
    usual = counter.record("rows: drain")
    subprocess.run(["cc", "-O1", f"-DTURNS={usual / 5 / 7:.0f}", "-shared", "-fPIC", "-o", tmp_path / "slower.so",
                    tmp_path / "slower.c", "-ldl"], check=True)
    slower = make_counter(LD_PRELOAD=tmp_path / "slower.so").record("rows: drain")
    print(f"{slower:.0f}, without {usual:.0f}")
    assert slower < usual * 1.25
    assert slower / counter.record("rows: limit") > rows.INSTRUCTIONS[0].most


def test_work_at_rest_and_at_a_low_rate(database, topic, make_relay):
    relay = make_relay().wait_ready()

    def measure():
        counted = count_work(database, topic, relay)
        print(counted)
        assert counted.keys() == rows.COUNTS.keys()
        return [(name, count) for name, count in counted.items() if count > rows.COUNTS[name]]

    assert not until_within(measure)


@pytest.fixture(scope="session")
def redis():
    with Redis() as server:
        yield server


@pytest.fixture(scope="session")
def cluster():
    with RedisCluster() as servers:
        yield servers


@pytest.fixture
def run_kind(request, empty_database, kafka):
    """run_kind(Kind): (exit status, its figures), with the servers that its options name."""
    def url(word):
        if word == "DSN":
            return empty_database.dsn
        if word == "REDIS":
            request.getfixturevalue("redis").client.flushall()  # dedup empties no database that has keys
        return request.getfixturevalue(word.lower()).url if word in ("REDIS", "CLUSTER") else word

    def run(kind):
        settings = {"DATABASE_URL": empty_database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
        status, output, error = run_command(
            ["--relay", binary(), "--json", *map(url, kind.options.split()), kind.name], settings, timeout=300,
            program=bench_binary())
        assert status in (0, 1), error
        if "REDIS" in kind.options:
            left = request.getfixturevalue("redis").client.keys("*")
            assert not left or kind.name == "inbox" and not [key for key in left if b":claim:" in key]
        return status, json.loads(output)["figures"]

    return run


@pytest.fixture
def nothing_is_left(empty_database, kafka):
    """nothing_is_left(): schemas, topics and groups are those of before."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def groups():
        return {group.id for group in client.list_groups(timeout=30) if group.id.startswith("outbox_bench")}

    before = groups()

    def check():
        assert empty_database.execute("select nspname from pg_namespace where nspname like 'outbox%'") == []
        # a broker answers that a topic is deleted before all of it has heard so
        wait_for(lambda: not [topic for topic in client.list_topics(timeout=30).topics
                              if topic.startswith("outbox-bench")], what="the end of the topics")
        # a group without members goes with the last topic that it has offsets of
        wait_for(lambda: groups() <= before, what="the end of the groups")

    return check


def verdict(figure):
    relation = {"at most": "<=", "at least": ">="}[figure["bound"]]
    return "ok" if rows.is_within(rows.judged(figure), relation, figure["bound_value"]) else "NOT"


@pytest.mark.parametrize("kind", rows.in_turns(rows.KINDS))
def test_a_kind_is_within_the_bounds_of_the_guard(run_kind, nothing_is_left, kind):
    def measure():
        status, figures = run_kind(kind)
        nothing_is_left()
        assert [figure["name"] for figure in figures
                if figure["value"] <= 0 and figure["unit"] not in MAY_BE_ZERO] == []
        judged = [figure for figure in figures if "bound" in figure]
        assert [figure["verdict"] for figure in judged] == [verdict(figure) for figure in judged]
        assert status == ("NOT" in [figure["verdict"] for figure in judged])
        for figure in figures:
            print(f"{figure['name']}: {figure['value']:.4g} {figure['unit']}, judged {rows.judged(figure):.4g}")
        return rows.beyond(kind, figures)

    assert not until_within(measure)
