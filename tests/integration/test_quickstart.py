"""./quickstart lookback and inbox as a newcomer runs them, but for the program, which is built already."""

import os
import pathlib
import re
import shlex
import signal
import subprocess

import psycopg2
import pytest

from support.process import Process, process_ended, server_user, temporary_folder, wait_for
from support.relay import binary, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = 400  # seconds; it takes twenty on a machine that has nothing else to do
WAYS = ["commit +yes +commit: explicit +1 ", "rollback +no +rollback: explicit +0 ",
        "committed, killed +yes +commit: called back +1 ",
        "rolled back, killed +no +rollback: called back +0 ",
        "transaction open, the process hangs +no +parked +0 ",
        "committed, asked at the wrong door +yes +commit: parked, then by an operator +1 "]


@pytest.fixture
def folder():
    return pathlib.Path(temporary_folder("quickstart", server_user()))


def settings(folder):
    return environment({"OUTBOX_RELAY": binary(), "TMPDIR": folder, "PYTHONUNBUFFERED": "1"})


def run(command, folder, timeout=LONG):
    """(exit status, what it said)"""
    done = subprocess.run(command, cwd=ROOT, env=settings(folder), text=True, timeout=timeout,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def processes_of(folder):
    """Ids of the living processes that were started with the folder as TMPDIR."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:  # it has just ended
            continue
    return found


def test_the_lookback_is_shown_and_judged_from_both_sides(folder):
    stop = None
    try:
        status, said = run(["./quickstart", "lookback", "--keep", "--orders", "400"], folder)
        stop = next(folder.glob("*/stop"), None)
        assert status == 0, said
        assert "the shop's table and the topic agree" in said
        assert not [way for way in WAYS if not re.search(way, said)], said
        judge = shlex.split(re.search(r"^.*lookback_shop\.py verdict .*$", said, re.MULTILINE)[0])

        # What the hints say about those that are parked.
        retry = re.search(r"^  (export .*\\\n.*)\n(?:.*\n)*?  (.* lookback retry .*)$", said,
                          re.MULTILINE)
        status, answer = run(["sh", "-ec", "\n".join(retry.groups())], folder)
        assert status == 0, answer
        wait_for(lambda: ", 0 parked" in run(judge, folder)[1], LONG, "those that hung")
        assert run(judge, folder)[0] == 0

        with psycopg2.connect(judge[judge.index("--dsn") + 1]) as shop, shop.cursor() as cursor:
            cursor.execute("delete from shop.orders where id in "
                           "(select id from shop.orders order by id limit 2)")
        shop.close()
        status, answer = run(judge, folder)
        assert status == 1 and "2 orders are wrong" in answer
        assert answer.count("not in the shop's table, 1 times in the topic") == 2
    finally:
        stopped = stop_all(folder, stop)
    assert stopped == 4


def stop_all(folder, stop):
    """What --keep left running, by its own script; how many processes these were."""
    if not stop:
        return 0
    pids = [int(pid) for pid in re.findall(r"kill (?:-INT )?(\d+)", stop.read_text())]
    run([stop], folder)
    wait_for(lambda: all(map(process_ended, pids)), 120, "the end of what stayed up")
    wait_for(lambda: not list(folder.iterdir()), 60, "an empty folder")
    return len(pids)


def test_the_inbox_is_shown_and_judged(folder):
    stop = None
    try:
        status, said = run(["./quickstart", "inbox", "--keep", "--orders", "200"], folder)
        stop = next(folder.glob("*/stop"), None)
        assert status == 0, said
        assert re.search(r"consumer 1 is killed \(SIGKILL\), \d+ of 200 orders are charged", said)
        assert said.count("rebalance: ") == 3
        copies = re.search(r"200 orders, \d+ records in the topic, (\d+) of them copies; 200 charges", said)
        assert int(copies[1]) > 0
        assert "verdict: each order is charged once" in said
        judge = shlex.split(re.search(r"^.*inbox_shop\.py verdict .*$", said, re.MULTILINE)[0])
        with psycopg2.connect(judge[judge.index("--dsn") + 1]) as shop, shop.cursor() as cursor:
            cursor.execute("delete from charge where amount = 7")
            cursor.execute("insert into charge select * from charge where amount = 8")
        shop.close()
        status, answer = run(judge, folder)
        assert status == 1 and "2 orders are wrong" in answer
        assert "order 7: charged 0 times" in answer and "order 8: charged 2 times" in answer
    finally:
        stopped = stop_all(folder, stop)
    assert stopped == 2


@pytest.mark.rotated
@pytest.mark.parametrize("what, until", [("lookback", "hangs (SIGSTOP)"), ("inbox", "is killed (SIGKILL)")])
def test_ctrl_c_leaves_nothing_behind(folder, tmp_path, what, until):
    # A shell that was started with a signal ignored, as one in the background is, cannot trap it.
    quickstart = Process(["env", "--default-signal=INT", ROOT / "quickstart", what],
                         tmp_path / "log", environment=settings(folder), folder=ROOT,
                         death_signal="TERM")
    wait_for(lambda: until in quickstart.output() or not quickstart.running, LONG,
             "a shop that is open")
    assert quickstart.running, quickstart.tail()
    assert len(processes_of(folder)) > 5
    os.killpg(quickstart.pid, signal.SIGINT)
    assert quickstart.wait(120) == 130
    wait_for(lambda: not processes_of(folder), 60, "the end of all that it started")
    assert not list(folder.iterdir())
