"""The look-back's checker in a database of the business (relay/lookback/transport_sql.c)."""

import contextlib
import pathlib
import re

import pytest

from support.check_asker import Asker
from support.fake_postgres import FakePostgres
from support.postgres import Postgres
from support.process import free_port, wait_for

HEAD = "create function lookback_check(biz_type text, biz_ids text[]) " \
       "returns table (biz_id text, decision text) "
NAME = "outbox-relay check shop"


@pytest.fixture
def make_asker(tmp_path, empty_database):
    with contextlib.ExitStack() as askers:
        yield lambda **settings: askers.enter_context(Asker(
            tmp_path, **{"transport": "sql", "dsn": empty_database.dsn, **settings}))


@pytest.fixture
def answers_with(empty_database):
    """answers_with(query): the body of the function, in SQL; language=… for another."""
    def make(body, language="sql", head=HEAD):
        empty_database.execute(f"{head} language {language} as $body$ {body} $body$")
    return make


def assert_undecided(answer, failure, sent=True, reached=None):
    assert set(answer["words"]) == {"unknown"}, answer
    assert answer["failure"] == failure, answer
    assert answer["sent"] == sent and len(answer["error"]) > 10, answer
    assert reached is None or answer["reached"] == reached, answer


def sessions(database, state=None):
    return database.execute(
        "select count(*) from pg_stat_activity where application_name = %s "
        "and datname = %s and state = coalesce(%s, state)", (NAME, database.name, state))[0][0]


# --- what is asked, and the right answer -----------------------------------------------------

@pytest.mark.parametrize("word", ["commit", "rollback", "unknown", "pending"])
def test_one_id_is_asked_and_answered(make_asker, answers_with, word):
    answers_with(f"select unnest(biz_ids), '{word}'")
    answer = make_asker().ask("order", 'ä"{7},\\')
    assert answer["words"] == [word] and answer["failure"] is None and answer["error"] == ""
    assert (answer["sent"], answer["reached"], answer["status"]) == (True, True, -1)
    assert answer["retry_after_ms"] == -1 and answer["total_us"] > 0


def test_the_function_of_the_page_answers(make_asker, empty_database):
    page = (pathlib.Path(__file__).parents[2] / "docs/reference/lookback-check.md").read_text("utf-8")
    empty_database.execute("create table orders (id bigint)")
    empty_database.execute("insert into orders values (42)")
    empty_database.execute(re.search(r"```sql\n(create function .*?)```", page, re.DOTALL)[1])
    assert make_asker().ask("order", "41", "42")["words"] == ["unknown", "commit"]


def test_several_ids_are_asked_at_once(make_asker, answers_with):
    answers_with("select id, case when biz_type = 'order' then "
                 "(array['commit', 'rollback', 'pending', 'unknown'])[id::int % 4 + 1] end "
                 "from unnest(biz_ids) id order by id")
    asker = make_asker()
    answer = asker.ask("order", *[str(number) for number in range(1000)])
    assert answer["words"] == ["commit", "rollback", "pending", "unknown"] * 250
    assert_undecided(asker.ask("other", "1", "2"), "answer", reached=True)


@pytest.mark.parametrize("flood", ["rows", "row", "notices", "settings", "hello"])
def test_a_server_that_floods_is_left(make_asker, flood):
    with FakePostgres(flood) as server:
        asker = make_asker(dsn=server.dsn, timeout="30s", connect_timeout="30s")
        answer = asker.ask("order", "7")
        assert_undecided(answer, "too_large", sent=flood != "hello")
        assert "more than" in answer["error"], answer
        # a sanitizer takes most of it; without the limit it is the whole flood
        assert asker.peak_memory() < 256 << 20
        # the buffers of two sockets, and no more
        assert server.sent < 64 << 20


def test_an_answer_has_at_most_max_answer_bytes(make_asker, answers_with):
    answers_with("select id, 'commit' from unnest(biz_ids) id")
    ids = [f"{number:0100}" for number in range(10)]
    assert make_asker(max_answer="1060B").ask("order", *ids)["words"] == ["commit"] * 10
    answer = make_asker(max_answer="1059B").ask("order", *ids)
    assert_undecided(answer, "too_large", reached=True)
    assert "1059 bytes" in answer["error"]


def test_ids_that_are_left_out_are_unknown_and_the_others_are_not(make_asker, answers_with):
    answers_with("values ('2', 'commit'), ('3', 'Commit')")
    answer = make_asker().ask("order", "1", "2", "3")
    assert answer["words"] == ["unknown", "commit", "unknown"]
    assert answer["failure"] is None and "of 1 " in answer["error"]


@pytest.mark.parametrize("name,written", [
    ('public.lookback_check', "public.lookback_check"),
    ('"My Shop"."look; drop table t"', "My Shop.look; drop table t"),
    ('"a""b"', 'a"b'), ('"Look"', "Look"), ('"$1:function"', "$1:function")])
def test_the_name_of_the_function_is_taken_as_it_is(
        make_asker, answers_with, empty_database, name, written):
    empty_database.execute('create schema "My Shop"; create table t ()')
    answers_with("select unnest(biz_ids), 'commit'",
                 head=HEAD.replace("lookback_check", name, 1))
    # a semicolon behind a blank begins a comment in an INI file
    assert make_asker(function=f'{written}').ask("order", "7")["words"] == ["commit"]
    empty_database.execute("select from t")


@pytest.mark.parametrize("returns,body", [
    ("table (a varchar, b name)", "select unnest(biz_ids), 'commit'::name"),
    ("table (a text, b text, c int)", "select unnest(biz_ids), 'commit', 1"),
    ("setof outcome", "select unnest(biz_ids), 'commit'::word")])
def test_rows_may_be_of_other_types(make_asker, answers_with, empty_database, returns, body):
    empty_database.execute("create type word as enum ('commit', 'rollback');"
                           "create type outcome as (id text, said word)")
    answers_with(body, head=f"create function lookback_check(biz_type text, biz_ids text[]) "
                            f"returns {returns}")
    assert make_asker().ask("order", "7")["words"] == ["commit"]


def test_connections_are_few_and_kept(make_asker, answers_with, empty_database):
    answers_with("select unnest(biz_ids), 'commit' from pg_sleep(0.01)")
    asker = make_asker(host_in_flight=100)
    for _ in range(3):
        numbers = [asker.send("order", str(number)) for number in range(100)]
        assert all(asker.answer(number)["words"] == ["commit"] for number in numbers)
        assert 1 <= sessions(empty_database) <= 4
    assert sessions(empty_database, "idle") == sessions(empty_database)
    assert asker.close()["longest_us"] < 5_000_000


def test_no_more_are_under_way_than_may_be(make_asker, answers_with, empty_database):
    answers_with("select unnest(biz_ids), 'commit' from pg_sleep(0.5)")
    asker = make_asker(host_in_flight=2)
    numbers = [asker.send("order", str(number)) for number in range(3)]
    assert "as many as may be" in asker.answer(numbers[2])["error"]
    assert asker.answer(numbers[0])["words"] == asker.answer(numbers[1])["words"] == ["commit"]
    assert "brings a URL" in asker.ask("order", "7", url="http://shop.example.com/")["error"]


# --- wrong answers ---------------------------------------------------------------------------

@pytest.mark.parametrize("body", [
    "select '8', 'commit'", "select null, 'commit'", "select '7', null", "select '7', 'COMMIT'",
    "select '7', 'commit '", "select '7 ', 'commit'", "select '7', ''", "select '7', 'committed'",
    "select '7', 'commit' where false", "values ('7', 'commit'), ('7', 'commit')",
    "values ('7', 'commit'), ('8', 'commit')",
    "select '7', 'commit' from generate_series(1, 1000000)",
    "select '7', 'commit' || repeat(' ', 10000000)", "select repeat('7', 10000000), 'commit'"])
def test_nothing_is_decided_by(make_asker, answers_with, body):
    answers_with(body)
    assert_undecided(make_asker().ask("order", "7"), "answer", reached=True)


@pytest.mark.parametrize("body", [
    "values ('1', 'commit'), ('1', 'rollback')", "values ('1', 'commit'), ('3', 'commit')",
    "values ('1', 'commit'), ('1', null)"])
def test_of_several_nothing_is_decided_by(make_asker, answers_with, body):
    answers_with(body)
    assert_undecided(make_asker().ask("order", "1", "2"), "answer", reached=True)


def test_an_exception_decides_nothing_and_costs_no_connection(
        make_asker, answers_with, empty_database):
    answers_with("begin if biz_ids[1] = '7' then raise exception 'no order %', biz_ids[1]; end if; "
                 "return query select unnest(biz_ids), 'commit'; end", "plpgsql")
    asker = make_asker(host_in_flight=1)
    for _ in range(3):
        answer = asker.ask("order", "7")
        assert_undecided(answer, "database", reached=True)
        assert "no order 7" in answer["error"]
    assert asker.ask("order", "8")["words"] == ["commit"]
    assert sessions(empty_database) == 1


@pytest.mark.parametrize("statement,says", [
    ("select", "no such function of (text, text[])"),
    (HEAD + "language sql as $$ select unnest(biz_ids), 'commit' $$;"
     "revoke execute on function lookback_check from public", "a privilege is missing"),
    (HEAD + "language plpgsql as $$ begin return query select id, x from nowhere; end $$",
     "names a table that is not there"),
    ("create function lookback_check(text, text[]) returns text language sql as $$ select 'commit' $$",
     "SQLSTATE 42P10"),
])
def test_a_function_that_cannot_be_called_is_told(make_asker, empty_database, statement, says):
    empty_database.execute(statement)
    with contextlib.suppress(Exception):
        empty_database.execute("create role lookback_shop login")
    dsn = empty_database.postgres.dsn(empty_database.name, "lookback_shop")
    answer = make_asker(dsn=dsn).ask("order", "7")
    assert_undecided(answer, "database", reached=True)
    assert says in answer["error"] and "migrate up" not in answer["error"]


# --- time ------------------------------------------------------------------------------------

def test_a_function_that_overruns_is_ended_by_the_server(make_asker, answers_with, empty_database):
    answers_with("select id, 'commit' from unnest(biz_ids) id, "
                 "pg_sleep(case id when '7' then 600 else 0 end)")
    asker = make_asker(timeout="1s", host_in_flight=1)
    assert_undecided(asker.ask("order", "7"), "timeout", reached=False)
    assert sessions(empty_database, "active") == 0
    pid = empty_database.execute(
        "select pid from pg_stat_activity where application_name = %s and datname = %s",
        (NAME, empty_database.name))
    assert asker.ask("order", "8")["words"] == ["commit"]
    assert pid == empty_database.execute(
        "select pid from pg_stat_activity where application_name = %s and datname = %s",
        (NAME, empty_database.name))


def test_a_lock_is_not_waited_for_beyond_the_time(make_asker, answers_with, empty_database):
    empty_database.execute("create table orders (id text)")
    answers_with("select unnest(biz_ids), 'commit' from (select from orders) o")
    holder = empty_database.connect(autocommit=False)
    try:
        holder.cursor().execute("lock table orders")
        answer = make_asker(timeout="1s").ask("order", "7")
    finally:
        holder.close()
    assert_undecided(answer, "timeout", reached=False)


def test_who_waits_too_long_for_a_connection_was_never_sent(make_asker, answers_with):
    answers_with("select unnest(biz_ids), 'commit' from pg_sleep(600)")
    asker = make_asker(timeout="1s")
    numbers = [asker.send("order", str(number)) for number in range(20)]
    answers = [asker.answer(number) for number in numbers]
    sent = [answer for answer in answers if answer["failure"] == "timeout"]
    # four connections; one that is free again in the last moment may take one more
    assert answers[0] in sent and len(sent) <= 8
    for answer in answers:
        if answer not in sent:
            assert_undecided(answer, "queue_timeout", sent=False, reached=False)


# --- reading and writing ---------------------------------------------------------------------

WRITES = "begin insert into barrier select unnest(biz_ids); " \
         "return query select unnest(biz_ids), case biz_type when 'bad' then 'x' else 'rollback' end," \
         " biz_ids[1] is null; end"
WRITES_HEAD = HEAD.replace("decision text)", "decision text, other bool)")


def test_a_function_cannot_write(make_asker, answers_with, empty_database):
    empty_database.execute("create table barrier (id text)")
    answers_with(WRITES, "plpgsql", WRITES_HEAD)
    asker = make_asker()
    answer = asker.ask("order", "7")
    assert_undecided(answer, "database", reached=True)
    assert "read_only = yes" in answer["error"]
    assert empty_database.execute("select count(*) from barrier") == [(0,)]


def test_what_a_function_may_write_is_there_before_its_answer_counts(
        make_asker, answers_with, empty_database):
    empty_database.execute("create table barrier (id text)")
    answers_with(WRITES, "plpgsql", WRITES_HEAD)
    asker = make_asker(read_only="no")
    assert asker.ask("order", "7")["words"] == ["rollback"]
    assert empty_database.execute("select id from barrier") == [("7",)]


def test_an_answer_whose_transaction_does_not_commit_is_none(
        make_asker, answers_with, empty_database):
    empty_database.execute(
        "create table barrier (id text unique deferrable initially deferred);"
        "insert into barrier values ('7')")
    answers_with(WRITES, "plpgsql", WRITES_HEAD)
    asker = make_asker(read_only="no", host_in_flight=1)
    assert_undecided(asker.ask("order", "7"), "database", reached=True)
    assert asker.ask("order", "8")["words"] == ["rollback"]
    assert empty_database.execute("select id from barrier order by id") == [("7",), ("8",)]


def test_what_a_function_wrote_for_nonsense_is_undone(make_asker, answers_with, empty_database):
    empty_database.execute("create table barrier (id text)")
    answers_with("begin insert into barrier select unnest(biz_ids); "
                 "return query select 'other', 'commit'; end", "plpgsql")
    assert_undecided(make_asker(read_only="no").ask("order", "7"), "answer", reached=True)
    assert empty_database.execute("select count(*) from barrier") == [(0,)]


# --- connections -----------------------------------------------------------------------------

def test_a_lost_connection_is_made_anew(make_asker, answers_with, empty_database):
    answers_with("select id, 'commit' from unnest(biz_ids) id, "
                 "pg_sleep(case id when '7' then 600 else 0 end)")
    asker = make_asker(host_in_flight=1)
    for _ in range(3):
        assert asker.ask("order", "8")["words"] == ["commit"]
        assert empty_database.postgres.terminate_backends(NAME, empty_database.name) == 1
        wait_for(lambda: sessions(empty_database) == 0, 30, "the session's end")
        number = asker.send("order", "7")
        wait_for(lambda: sessions(empty_database, "active") == 1, 30, "the question")
        empty_database.postgres.terminate_backends(NAME, empty_database.name)
        assert_undecided(asker.answer(number), "closed", reached=False)
    assert asker.ask("order", "8")["words"] == ["commit"]


def test_a_database_that_is_not_there_is_no_attempt(make_asker):
    asker = make_asker(dsn=f"postgresql://shop:geheim@127.0.0.1:{free_port()}/shop")
    numbers = [asker.send("order", str(number)) for number in range(20)]
    for number in numbers:
        assert_undecided(asker.answer(number), "connect", sent=False, reached=False)
    asker.close()
    assert not any("geheim" in line for line in asker.lines)


def test_a_database_that_goes_and_comes_is_asked_again(tmp_path):
    with Postgres() as postgres:
        def prepare():
            postgres.execute(HEAD + "language sql as $$ select unnest(biz_ids), 'commit' $$")
        prepare()
        with Asker(tmp_path, transport="sql", dsn=postgres.dsn(), timeout="1s",
                   connect_timeout="500ms") as asker:
            assert asker.ask("order", "7")["words"] == ["commit"]
            postgres.stop("immediate")
            wait_for(lambda: asker.ask("order", "7")["failure"] == "connect", 30, "a refusal")
            postgres.start()
            wait_for(lambda: asker.ask("order", "7")["words"] == ["commit"], 30, "an answer")
            # Nobody answers, and nobody says so.
            postgres.pause()
            try:
                answers = [asker.ask("order", "7") for _ in range(2)]
            finally:
                postgres.resume()
            assert_undecided(answers[0], "timeout", sent=False, reached=False)
            assert_undecided(answers[1], "connect_timeout", sent=False, reached=False)
            wait_for(lambda: asker.ask("order", "7")["words"] == ["commit"], 30, "an answer")
            assert asker.close()["longest_us"] < 2_000_000
