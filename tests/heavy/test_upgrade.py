"""Rolling upgrade: the program of this commit and one of the next version, with a schema of its own, side by
side under writers, and back again. Nothing is lost, and nothing is published twice."""
import subprocess
from pathlib import Path

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.relay import run_command

ROOT = Path(__file__).resolve().parents[2]
LONG = 120  # seconds
NEXT = "0018_next"
# It changes what both programs read and write: their prepared statements and row types meet new columns.
MIGRATION = """\
-- oldest-program: 0.1.0
alter table outbox.message add column of_next_version text;
alter table outbox.log add column of_next_version int default 1;
create function outbox.of_next_version() returns int language sql return 1;
"""


@pytest.fixture(scope="module")
def next_program(tmp_path_factory):
    """The program of the next version, with one more migration."""
    source = tmp_path_factory.mktemp("next") / "source"
    source.mkdir()
    tree = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=tree, check=True)
    edit(source / "meson.build", "version: '0.1.0'", "version: '0.2.0'")
    edit(source / "sql/meson.build", "  'migrations/0017_bell.sql',\n",
         f"  'migrations/0017_bell.sql',\n  'migrations/{NEXT}.sql',\n")
    (source / f"sql/migrations/{NEXT}.sql").write_text(MIGRATION)
    for command in (["meson", "setup", "build", "-Dbuildtype=custom", "-Doptimization=1", "-Ddebug=false"],
                    ["meson", "compile", "-C", "build", "relay/cli/outbox-relay"]):
        built = subprocess.run(command, cwd=source, capture_output=True, text=True)
        assert built.returncode == 0, built.stdout[-5000:]
    return source / "build/relay/cli/outbox-relay"


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new))


def goes_on(relay, kafka, topic):
    seen = count_records(kafka.bootstrap, [topic])
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) > seen, LONG, "progress")


def hand_over(old, new, kafka, topic):
    """The old process ends and hands its shard over; the new one goes on."""
    assert old.stop() == 0
    new.wait_event("shard_taken", state="owner")
    goes_on(new, kafka, topic)


def test_two_versions_side_by_side_and_back(database, kafka, topic, make_relay, make_writers, next_program):
    settings = {"DATABASE_URL": database.dsn}
    writers = make_writers(rate=500)
    first = make_relay().wait_ready()
    with writers:
        goes_on(first, kafka, topic)
        status, output, error = run_command(["migrate", "up"], settings, program=next_program)
        assert status == 0 and NEXT in output, output + error
        goes_on(first, kafka, topic)
        second = make_relay(program=str(next_program)).wait_ready()
        hand_over(first, second, kafka, topic)
        third = make_relay().wait_ready()  # the old program again, which the new schema accepts
        hand_over(second, third, kafka, topic)
    count = database.execute("SELECT count(*) FROM outbox.message")[0][0]
    third.wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= count, LONG, "every message")
    assert third.stop() == 0
    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.records == verdict.published == verdict.committed > 0, verdict


def test_an_older_program_than_the_schema_accepts_is_refused(database, kafka, make_relay, next_program):
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    assert run_command(["migrate", "up"], settings, program=next_program)[0] == 0
    database.execute(f"UPDATE outbox.migration SET oldest_program = '0.2.0' WHERE name = '{NEXT}'")
    for arguments in (["migrate", "up"], ["run"]):
        status, output, error = run_command(arguments, settings)
        assert status != 0
        assert f"migration {NEXT}, applied by outbox-relay 0.2.0, needs outbox-relay 0.2.0 or newer" in output + error
        assert "upgrade this program" in output + error
    assert run_command(["migrate", "up"], settings, program=next_program)[0] == 0
    make_relay(program=str(next_program)).wait_ready().wait_event("shard_taken", state="owner")
