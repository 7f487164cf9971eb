"""`retention = archive`: an old partition is written to a file, checked, dropped, and brought back for a replay.
Killed after each step, with a full disk, a read-only folder and damaged files: no row is lost."""

import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import time

import pytest

from support import disk
from support.auditor import read_topics
from support.process import wait_for
from support.relay import binary, environment, run_command

OLD = "2020-01-01", "2020-01-02"
LEAF = "message_p20200101"
ROWS = """
INSERT INTO outbox.message (created_at, topic, key, payload, headers)
SELECT timestamptz '2020-01-01 00:00Z' + n * interval '1 ms', %s, 'k' || n %% 100,
       n || repeat(md5(n::text), 7), CASE n %% 3 WHEN 0 THEN NULL ELSE '{"a": "b"}'::jsonb END
FROM generate_series(1, %s) n"""
LAST_STATE = "SELECT state FROM outbox.archive ORDER BY id DESC LIMIT 1"
# what each row is, whatever table holds it
DIGEST = "SELECT count(*), md5(string_agg(m::text, E'\\n' ORDER BY m.id)) FROM outbox.{} m"
KILLS = "archive_begun", "archive_written", "archive_renamed", "archive_checked", "archive_dropped"
RESTORE_KILLS = "restore_begun", "restore_copied", "restore_loaded", "restore_attached"


def acknowledge(database):
    """The publisher's newest log row says that everything committed by now is published."""
    database.execute(
        """INSERT INTO outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick,
               acked_id, ticks, destinations, folded, timeline, system_identifier)
           SELECT publisher, shard, n + 1, epoch, 1, '', '-infinity', first_tick + 1, 0,
               array[pg_current_snapshot()], '{}', folded, timeline, system_identifier
           FROM outbox.progress""")


def digest(database, table="message"):
    return database.execute(DIGEST.format(table))[0]


def tables(database):
    """All tables that could hold rows of the old partition."""
    return {name for name, in database.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind = 'r' "
        "AND relname LIKE 'message\\_p2020%'")}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "archive"
    path.mkdir()
    return path


@pytest.fixture
def archives(folder):
    return {"postgres_retention": "archive", "postgres_archive_path": folder, "postgres_retain": "1s",
            "postgres_upkeep_interval": "100ms"}


@pytest.fixture
def old(database):
    """A database with an old partition of 2,000 published rows."""
    assert database.execute("SELECT outbox.partition_make('message', %s, %s)", OLD) == [("made",)]
    database.execute(ROWS, ("t", 2000))
    acknowledge(database)
    return database


def until_archived(database, timeout=60):
    wait_for(lambda: database.execute(LAST_STATE) == [("archived",)], timeout, "the archive")


def partition(database, verb, *arguments, **settings):
    return run_command(["partition", verb, *arguments],
                       {"DATABASE_URL": database.dsn,
                        **{f"OUTBOX_RELAY_POSTGRES_{name.upper()}": value for name, value in settings.items()}})


def restore(database, name=LEAF, *arguments, **settings):
    status, output, error = partition(database, "restore", name, *arguments, **settings)
    assert status == 0, error
    return output


def test_a_partition_is_archived_checked_dropped_restored_and_replayed(
        database, kafka, topic, folder, archives, make_relay, until_published, scale):
    rows = scale(1_000_000, default=10_000)
    kafka.alter_topic(topic, retention_ms=-1)  # the records are of 2020
    assert database.execute("SELECT outbox.partition_make('message', %s, %s)", OLD) == [("made",)]
    database.execute(ROWS, (topic, rows))
    before = digest(database)
    relay = make_relay(**{**archives, "postgres_retain": "3650d"}).wait_ready()
    until_published()
    assert relay.stop() == 0 and tables(database) == {LEAF}

    relay = make_relay(**archives)
    event, = relay.wait_event("partition_archived", timeout=300)
    assert int(event["rows"]) == rows == before[0]
    assert tables(database) == set() and digest(database) == (0, None)
    path = event["file"]
    assert os.listdir(folder) == [os.path.basename(path)] and stat.S_IMODE(os.stat(path).st_mode) == 0o600
    # the tools of others read it, too: a COPY in zstd
    plain = subprocess.run(["zstd", "-dc", path], capture_output=True, check=True).stdout
    assert plain.startswith(b"PGCOPY\n\xff\r\n\0") and len(plain) == int(event["bytes"])
    relay.wait_for(lambda: relay.metric("relay_archive_waiting") == 0)
    relay.wait_for(lambda: relay.metric("relay_archived_bytes_total") == len(plain), what="the metric")
    listed = json.loads(partition(database, "list", "--json", "--table=message")[1])
    assert [(each["state"], each["rows"], each["place"]) for each in listed
            if each["partition"] == LEAF] == [("archived", rows, path)]

    # the relay runs on: it leaves the restored partition where it is, and publishes none of it again
    assert f"{LEAF} restored: {rows} rows" in restore(database)
    assert digest(database) == before and tables(database) == {LEAF}
    assert '"restored"' in partition(database, "list", "--json")[1]
    target = kafka.create_topic(f"{topic}.again", retention_ms=-1)
    status, output, error = run_command(
        ["replay", f"topic={topic}", "--to", target, "--reason", "a consumer lost its table"],
        {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}, 600)
    assert status == 0, error

    def contents(name):
        return sorted((record.key, record.payload, dict(record.headers)["outbox-id"])
                      for record in read_topics(kafka.bootstrap, [name]))

    first, again = contents(topic), contents(target)
    assert len(first) == rows and again == first
    kafka.delete_topic(target)

    # after its time it goes again, without a second file
    database.execute("UPDATE outbox.archive SET kept_until = clock_timestamp()")
    wait_for(lambda: tables(database) == set(), 60, "the end of the restored partition")
    until_archived(database)
    assert os.listdir(folder) == [os.path.basename(path)]
    assert relay.events("archive_failed") == [] and relay.stop() == 0


def is_nowhere_lost(database, before, folder):
    """The rows are in one table, or else in one whole file."""
    held = tables(database)
    if held:
        table, = held
        assert digest(database, table) == before
    else:
        restore(database, archive_path=folder)
        assert digest(database) == before
        database.execute("UPDATE outbox.archive SET kept_until = clock_timestamp()")


@pytest.mark.parametrize("point", KILLS)
def test_a_kill_at_each_step_of_an_archive_loses_nothing(point, old, folder, archives, make_relay):
    before = digest(old)
    relay = make_relay(**archives)
    relay.kill()
    relay.start(OUTBOX_RELAY_FAULT=point)
    assert relay.wait(60) == -9
    is_nowhere_lost(old, before, folder)
    relay.start()
    wait_for(lambda: not tables(old), 60, "the end of the table")
    until_archived(old)
    # nothing of the try that was killed is left behind
    assert len(os.listdir(folder)) == 1
    restore(old)
    assert digest(old) == before


@pytest.mark.parametrize("point", RESTORE_KILLS)
def test_a_kill_at_each_step_of_a_restore_loses_nothing(point, old, folder, archives, make_relay):
    before = digest(old)
    relay = make_relay(**archives)
    until_archived(old)
    status, _, _ = run_command(["partition", "restore", LEAF],
                               {"DATABASE_URL": old.dsn, "OUTBOX_RELAY_FAULT": point})
    assert status == -9
    status, output, error = partition(old, "restore", LEAF)
    if point == "restore_attached":
        assert status == 65 and f"its rows are in the partition {LEAF} already" in error
    else:
        assert status == 0, error
    assert digest(old) == before and tables(old) == {LEAF}
    assert len(os.listdir(folder)) == 1
    assert relay.stop() == 0


@pytest.mark.parametrize("point", ["restore_begun", "restore_loaded"])
def test_a_restore_that_another_one_replaced_makes_no_partition(point, old, folder, archives, make_relay):
    """The first one stops without or with its rows. The second one makes an empty table and is killed."""
    before = digest(old)
    relay = make_relay(**archives)
    until_archived(old)
    assert relay.stop() == 0
    first = subprocess.Popen([binary(), "partition", "restore", LEAF], stderr=subprocess.PIPE, text=True,
                             env=environment({"DATABASE_URL": old.dsn, "OUTBOX_RELAY_FAULT_STOP": point}))
    try:
        rows = before if point == "restore_loaded" else (0, None)
        wait_for(lambda: [digest(old, name) for name in tables(old)] == [rows], 20, "the table of the first one")
        status, _, _ = run_command(["partition", "restore", LEAF],
                                   {"DATABASE_URL": old.dsn, "OUTBOX_RELAY_FAULT": "restore_begun"})
        assert status == -9
    finally:
        first.send_signal(signal.SIGCONT)
        _, error = first.communicate(timeout=60)
    assert first.returncode == 69 and "another restore of it has begun since" in error, (first.returncode, error)
    assert "restored: 2000 rows" in restore(old)
    assert digest(old) == before and tables(old) == {LEAF}


def test_an_interrupted_restore_that_is_refused_later_leaves_no_table(old, folder, archives, make_relay):
    relay = make_relay(**archives)
    until_archived(old)
    assert relay.stop() == 0
    status, _, _ = run_command(["partition", "restore", LEAF],
                               {"DATABASE_URL": old.dsn, "OUTBOX_RELAY_FAULT": "restore_loaded"})
    assert status == -9
    assert old.execute("SELECT outbox.partition_make('message', %s, %s)", OLD) == [("made",)]
    status, _, error = partition(old, "restore", LEAF)
    assert status == 65 and f"the partition {LEAF} covers a part of its time" in error
    assert tables(old) == {LEAF} and old.execute(LAST_STATE) == [("archived",)]


def test_a_table_that_cannot_be_read_keeps_no_other_one_waiting(old, folder, archives, make_relay):
    old.execute("SELECT outbox.archive_detach(%s)", (LEAF,))
    (table,) = tables(old)
    old.execute(f"ALTER TABLE outbox.{table} ADD COLUMN damaged aclitem")  # COPY BINARY refuses this type
    assert old.execute("SELECT outbox.partition_make('message', '2020-01-03', '2020-01-04')") == [("made",)]
    old.execute(ROWS.replace("2020-01-01", "2020-01-03"), ("t", 10))
    acknowledge(old)
    relay = make_relay(**archives)
    until_archived(old)
    assert tables(old) == {table}
    wait_for(lambda: relay.metric("relay_archive_waiting") == 1, 20, "the end of the round that counts the tables")
    event, = relay.events("archive_failed")
    assert f"the table {table} cannot be read" in event["error"] and "aclitem" in event["error"]
    old.execute(f"ALTER TABLE outbox.{table} DROP COLUMN damaged")
    wait_for(lambda: tables(old) == set(), 60, "the archive of the first table")
    assert relay.wait_event("archive_works_again") and relay.stop() == 0


def one_line(event, *words):
    assert all(word in event["error"] for word in words), event
    assert "nothing is lost" in event["consequence"]


@pytest.mark.skipif(disk.refusal() is not None, reason="no disk can be mounted here")
def test_a_full_disk_is_reported_with_its_cure_and_loses_nothing(old, folder, archives, make_relay):
    before = digest(old)
    full = disk.Disk(str(folder))
    (folder / "other").write_bytes(bytes(65536))
    full.fill()
    relay = make_relay(**archives)
    event = relay.wait_event("archive_failed")[0]
    one_line(event, str(folder), "No space left on device", "make room on its disk, or set archive_path")
    held, = tables(old)
    assert digest(old, held) == before and os.listdir(folder) == ["other"]
    relay.wait_for(lambda: relay.metric("relay_archive_waiting") == 1, what="the metric")
    wait_for(lambda: "No space left" in relay.get("/readyz?verbose")[1], 30, "the problem in the report")
    full.free()
    relay.wait_event("archive_works_again")
    until_archived(old)
    restore(old)
    assert digest(old) == before
    assert len(relay.events("archive_failed")) == 1 and relay.stop() == 0
    full.unmount()


@pytest.mark.skipif(disk.refusal() is not None, reason="no disk can be mounted here")
@pytest.mark.parametrize("how", ["read-only", "missing", "a file"])
def test_a_folder_that_cannot_be_written_is_reported_with_its_cure(how, old, tmp_path, archives, make_relay):
    before = digest(old)
    path = str(tmp_path / "other")
    mounted = disk.Disk(path) if how == "read-only" else None
    words = {"read-only": ("Read-only file system", "mount it for writing, or set archive_path"),
             "missing": ("No such file or directory", "make the folder, or correct archive_path"),
             "a file": ("Not a directory", "set archive_path to a folder")}[how]
    if mounted:
        subprocess.run(["mount", "-o", "remount,ro", path], check=True)
    elif how == "a file":
        open(path, "w", encoding="ascii").close()
    relay = make_relay(**{**archives, "postgres_archive_path": path})
    event = relay.wait_event("archive_failed")[0]
    one_line(event, path, *words)
    held, = tables(old)
    assert digest(old, held) == before
    if mounted:
        subprocess.run(["mount", "-o", "remount,rw", path], check=True)
    elif how == "a file":
        os.unlink(path)
    os.makedirs(path, exist_ok=True)
    until_archived(old)
    restore(old)
    assert digest(old) == before and relay.stop() == 0
    if mounted:
        mounted.unmount()


def archived_file(database, folder, make_relay, archives):
    relay = make_relay(**archives)
    until_archived(database)
    assert relay.stop() == 0
    path, = glob.glob(f"{folder}/*")
    return path


def test_a_flipped_byte_and_a_cut_file_are_refused(old, folder, archives, make_relay, chance, scale):
    before = digest(old)
    path = archived_file(old, folder, make_relay, archives)
    with open(path, "rb") as file:
        whole = file.read()

    def refused(data, *words):
        with open(path, "wb") as file:
            file.write(data)
        status, _, error = partition(old, "restore", LEAF)
        assert status == 65 and path in error and error.count("\n") == 1, (status, error)
        assert all(word in error for word in words), error
        assert tables(old) == set() and old.execute(LAST_STATE) == [("archived",)]

    places = [0, 8, 20, len(whole) // 2, len(whole) - 60, len(whole) - 40, len(whole) - 1]
    places += [chance.randrange(len(whole)) for _ in range(scale(300, default=10))]
    for place in places:
        refused(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1:])
    for length in [0, 10, 100, len(whole) // 2, len(whole) - 48, len(whole) - 1]:
        refused(whole[:length])
    refused(whole + b"\0", "damaged")
    refused(whole + whole, "damaged")
    os.unlink(path)
    status, _, error = partition(old, "restore", LEAF)
    assert status == 65 and "does not exist; name its folder with --folder" in error

    with open(path, "wb") as file:
        file.write(whole)
    restore(old)
    assert digest(old) == before


def test_a_whole_file_of_another_partition_is_refused(old, folder, archives, make_relay):
    path = archived_file(old, folder, make_relay, archives)
    assert old.execute("SELECT outbox.partition_make('message', '2020-01-03', '2020-01-04')") == [("made",)]
    old.execute(ROWS.replace("2020-01-01", "2020-01-03"), ("t", 10))
    acknowledge(old)
    make_relay(**archives)
    wait_for(lambda: old.execute("SELECT count(*) FROM outbox.archive WHERE state = 'archived'") == [(2,)], 60,
             "the second archive")
    other, = set(glob.glob(f"{folder}/*")) - {path}
    shutil.copy(other, path)
    status, _, error = partition(old, "restore", LEAF)
    assert status == 65 and "it is another file" in error and tables(old) == set()


def test_a_file_is_restored_into_another_database(old, empty_database, folder, archives, make_relay):
    before = digest(old)
    path = archived_file(old, folder, make_relay, archives)
    other = empty_database.migrate()
    assert "restored: 2000 rows" in restore(other, path)
    # by no publisher: the transaction ids of one cluster mean nothing in another one
    assert digest(other)[0] == before[0]
    assert other.execute("SELECT count(*) FROM outbox.message_state WHERE state = 'pending'") == [(0,)]
    status, _, error = partition(other, "restore", LEAF)
    assert status == 65 and f"its rows are in the partition {LEAF} already" in error
    status, _, error = partition(old, "restore", "message_p20300101")
    assert status == 65 and "was not archived from this database" in error


def test_rows_that_come_late_are_archived_in_a_file_of_their_own(old, folder, archives, make_relay):
    relay = make_relay(**archives)
    until_archived(old)
    assert relay.stop() == 0  # it writes to its log, too
    # the partition is gone: they go to the default one, which upkeep moves to a new one of the old name
    old.execute(ROWS, ("t", 7))
    acknowledge(old)
    relay = make_relay(**archives)
    wait_for(lambda: old.execute("SELECT count(*) FROM outbox.archive WHERE state = 'archived'") == [(2,)], 60,
             "the second archive")
    assert sorted(old.execute("SELECT name, row_count FROM outbox.archive")) == [(LEAF, 7), (LEAF, 2000)]
    assert len(os.listdir(folder)) == 2
    status, _, error = partition(old, "restore", LEAF)
    assert status == 65 and "was archived more than once: name one of the files" in error
    file, = old.execute("SELECT file FROM outbox.archive WHERE row_count = 2000")[0]
    restore(old, file, archive_path=folder)
    assert digest(old)[0] == 2000
    assert relay.stop() == 0


def test_a_table_that_is_being_read_is_dropped_later(old, folder, archives, make_relay):
    before = digest(old)
    reader = old.connect(autocommit=False).cursor()
    reader.execute(f"LOCK TABLE outbox.{LEAF} IN ROW EXCLUSIVE MODE")
    relay = make_relay(**archives)
    relay.wait_ready()
    assert tables(old) == {LEAF}  # in use: not even detached
    reader.connection.rollback()
    wait_for(lambda: old.execute(LAST_STATE) != [], 60, "the detached table")
    until_archived(old)
    restore(old)
    assert digest(old) == before and relay.stop() == 0


def test_a_checked_file_that_cannot_be_read_for_now_is_kept(old, folder, archives, make_relay):
    old.execute("SELECT outbox.archive_detach(%s)", (LEAF,))
    (table,) = tables(old)
    reader = old.connect(autocommit=False).cursor()
    reader.execute(f"LOCK TABLE outbox.{table} IN ACCESS SHARE MODE")
    relay = make_relay(**archives)
    wait_for(lambda: old.execute(LAST_STATE) == [("written",)], 60, "the checked file")
    name, = os.listdir(folder)
    os.link(folder / name, folder / "kept")
    os.symlink(name, folder / "loop")
    os.replace(folder / "loop", folder / name)  # a link to itself: the file exists, and opening it fails
    event, = relay.wait_event("archive_failed")
    assert f"{name} cannot be read" in event["error"] and old.execute(LAST_STATE) == [("written",)]
    os.replace(folder / "kept", folder / name)
    reader.connection.rollback()
    until_archived(old)
    assert os.listdir(folder) == [name] and relay.stop() == 0


def test_two_relays_write_one_file(old, folder, archives, make_relay):
    before = digest(old)
    relays = [make_relay(**archives) for _ in range(2)]
    until_archived(old)
    wait_for(lambda: sum(len(each.events("partition_archived")) for each in relays) == 1, 60, "the event of one")
    restore(old)
    assert len(os.listdir(folder)) == 1
    assert digest(old) == before


def test_processed_ids_are_dropped_and_not_archived(old, folder, archives, make_relay):
    assert old.execute("SELECT outbox.partition_make('processed', %s, %s)", OLD) == [("made",)]
    old.execute("INSERT INTO outbox.processed (name, id, key, record_at, kept_until) "
                "VALUES ('billing', '\\x00', 0, '2020-01-01 12:00Z', '-infinity')")
    make_relay(**archives)
    wait_for(lambda: old.execute("SELECT to_regclass('outbox.processed_p20200101')") == [(None,)], 60, "its end")
    until_archived(old)
    assert old.execute("SELECT of_table FROM outbox.archive") == [("message",)]


def test_a_role_without_rights_on_tables_archives_and_restores(old, login, folder, archives, make_relay):
    before = digest(old)
    settings = login("outbox_relay")
    relay = make_relay(database_url=settings["DATABASE_URL"], **archives)
    until_archived(old)
    status, output, error = run_command(["partition", "restore", LEAF], settings)
    assert status == 0, error
    assert digest(old) == before and relay.stop() == 0
    # what it was granted for the work is gone
    assert old.execute(f"SELECT relacl FROM pg_class WHERE relname = '{LEAF}'") in ([(None,)], [("{postgres=arwdDxt/postgres}",)])


def test_archive_without_a_folder_is_refused(old):
    for settings, words in [({}, "name their folder with archive_path"),
                            ({"archive_path": "archive"}, "it is no absolute path")]:
        status, _, error = partition(old, "list", retention="archive", **settings)
        assert status == 78 and words in error and error.count("\n") == 1, error


def test_a_partition_of_the_look_back_is_archived_and_restored(database, folder, archives, make_relay):
    assert database.execute("SELECT outbox.partition_make('lookback', %s, %s)", OLD) == [("made",)]
    for kind, columns, values in [
            ("prepare", "source_partition, source_offset, topic, key, payload, headers, check_at, digest, event_id",
             "0, n, 't', 'k', 'x', '{\"a\": 1}', now(), 'd', gen_random_uuid()"),
            ("decision", "decision, source, decided_at", "'rollback', 'operator', now()")]:
        database.execute(
            f"INSERT INTO outbox.lookback (biz_type, biz_id, prepared_at, kind, section, {columns})"
            f" SELECT 'order', n, '2020-01-01 12:00Z', '{kind}', 'shop', {values} FROM generate_series(1, 50) n")
    rows = "SELECT l::text FROM outbox.lookback l ORDER BY 1"
    before = database.execute(rows)
    relay = make_relay(**archives)
    until_archived(database)
    assert database.execute(rows) == []
    assert "lookback_p20200101 restored: 100 rows" in restore(database, "lookback_p20200101")
    assert database.execute(rows) == before and len(before) == 100 and relay.stop() == 0


def test_the_doctor_checks_the_folder(old, folder):
    def doctor(path):
        return run_command(["doctor", "--json"], {
            "DATABASE_URL": old.dsn, "OUTBOX_RELAY_POSTGRES_RETENTION": "archive",
            "OUTBOX_RELAY_POSTGRES_ARCHIVE_PATH": path,
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"})[1]

    assert "archive_path" not in doctor(folder) and os.listdir(folder) == []
    report = doctor(folder / "missing")
    assert "missing cannot be written: No such file or directory" in report
    assert "make the folder, or correct archive_path" in report


def test_dropping_by_hand_does_not_bypass_the_archive(old, folder):
    dropping = partition(old, "drop", LEAF, "--yes", "--reason=x", retention="archive", archive_path=folder)
    assert dropping[0] == 65 and "`retention = archive` keeps its rows in a file" in dropping[2]
