"""`dedup stat` and `dedup verify` on folders that real stores made, whole, damaged and in use."""

import collections
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess

import pytest

from support.dedup import Dedup, DedupError
from support.process import server_user, wait_for
from support.relay import binary, environment, run_command

FOUND, DENIED, CONFIG = 1, 77, 78
HOUR = 3_600_000
BEGIN = 1_700_000_000_000 // HOUR * HOUR
UNIT, MAP_HEAD, MAPPED_HEAD = 32, 4096, 4096
LINES = {
    "bloom": "bloom ids=1k window=4h slices=4",
    "exact": "exact ids=1k window=8h",
    "counting": "counting lossy ids=1k rate=0.0001% window=4h slices=4",
    "counting8": "counting lossy ids=1k rate=0.0001% window=4h slices=4 counter=8",
    "bitmap": "bitmap ids=10M",
    "bithash": "bitmap lossy form=hash ids=10M",
    "bitmap window": "bitmap ids=10M window=4h slices=4",
    "bithash window": "bitmap lossy form=hash ids=10M window=4h slices=4",
}


def line(store, path):
    return f"{LINES[store]} path={path}"


def fill(path, store="bloom", batches=(0, 1, 2), count=100, end="close"):
    """Ids of some hours, a checkpoint each; how many."""
    dedup = Dedup(line(store, path))
    for number in batches:
        ids = [number * count + i for i in range(count)]
        dedup.time(BEGIN + number * HOUR)
        assert dedup.check(*ids) == ["new"] * count
        dedup.done(*ids)
        dedup.checkpoint((number + 1) * 1000)
    getattr(dedup, end)()
    return len(batches) * count


def as_somebody(command, path):
    """As a user who is not root, and to whom this folder's parents are open."""
    user = server_user()
    if not user:
        pytest.skip("another user is needed")
    for above in path.parents:
        if "pytest-of-" in str(above):
            above.chmod(0o755)
    run = subprocess.run(["runuser", "-u", user, "--", binary(), "dedup", command, path],
                         capture_output=True, text=True, timeout=60)
    return run.returncode, run.stdout, run.stderr


def stat(path):
    status, output, error = run_command(("dedup", "stat", "--json", path), {})
    assert status == 0, error
    return json.loads(output)


def verify(path):
    """The exit status, and the lines."""
    status, output, error = run_command(("dedup", "verify", path), {})
    assert error == "", error
    return status, output.splitlines()


def findings(path, status):
    """The lines that tell of something, of a folder that gives this status."""
    found, lines = verify(path)
    assert found == status, lines
    return [line for line in lines if line.startswith(("damaged: ", "harmless: "))
            and " files, " not in line]


def one(path, status, *words):
    """There is one finding, with these words."""
    lines = findings(path, status)
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0], lines
    return lines[0]


def contents(path):
    return {name: hashlib.sha256((path / name).read_bytes()).digest() for name in os.listdir(path)}


def patch(file, at, value):
    with open(file, "r+b") as opened:
        opened.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        opened.write(value)


def flip(file, at):
    with open(file, "r+b") as opened:
        opened.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 0x40]))


def logs(path, end="log"):
    """Those with ids, by slice; one of the next slice is made ready and empty."""
    names = [name for name in os.listdir(path) if name.endswith(f".{end}")
             and (path / name.replace(".map", ".log")).stat().st_size > 2 * UNIT]
    return [path / name for name in sorted(names)]


def other_boot(file):
    """As if the machine had been started again since."""
    patch(file, 16, b"\x01" * 16)


@pytest.fixture
def folder(tmp_path):
    fill(tmp_path / "dedup")
    return tmp_path / "dedup"


@pytest.mark.parametrize("prefix", ["0", "+"])
@pytest.mark.parametrize("store", LINES)
def test_a_file_whose_number_is_written_otherwise_is_foreign(tmp_path, store, prefix):
    """"07.bits" is not read as "7.bits", and the store does not open "7.bits" twice."""
    path = tmp_path / "dedup"
    ids = fill(path, store)
    numbered = [name for name in os.listdir(path) if name[0].isdigit() and not name.endswith(".map")]
    for name in numbered:
        shutil.copy(path / name, path / (prefix + name))

    with Dedup(line(store, path)) as dedup:
        assert dedup.stats()["ids"] == ids
        assert dedup.check(*range(ids)) == ["done"] * ids
    listed = {entry["file"] for entry in stat(path)["files"]}
    assert not listed & {prefix + name for name in numbered}
    assert len(findings(path, 0)) == len(numbered)


# --- stat ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", LINES)
def test_stat_tells_what_is_in_the_folder_of_each_store(tmp_path, store):
    path = tmp_path / "dedup"
    assert fill(path, store) == 300
    seen = stat(path)
    assert seen["store"] == store.split()[0].rstrip("8") and seen["version"] == 1 and len(seen["seed"]) == 16
    assert seen["ids"] == 300 and seen["offset"] == 3000 and not seen["in_use"]
    assert seen["findings"] == []
    files = {entry["file"]: entry for entry in seen["files"]}
    assert seen["bytes"] == sum(f["bytes"] + f["map_bytes"] for f in seen["files"])
    for name, entry in files.items():
        assert entry["bytes"] == (path / name).stat().st_size
    if store not in ("bitmap", "bithash"):
        assert seen["slice_ms"] == HOUR
        held = [entry for entry in seen["files"] if entry["ids"]]
        assert all(entry["to_ms"] - entry["from_ms"] == HOUR for entry in held)
        ids = collections.Counter()  # a slice of a bitmap has a file for each of its partitions
        for entry in held:
            ids[entry["from_ms"]] += entry["ids"]
        assert ids == {BEGIN + n * HOUR: 100 for n in range(3)}
    if store in ("bloom", "exact"):
        assert [(e["first_ms"], e["last_ms"]) for e in held] == [
            (BEGIN + n * HOUR, BEGIN + n * HOUR) for n in range(3)]
        assert [e["map"] for e in held] == ["as it is" if store == "bloom" else None] * 3


def test_people_read_the_same_figures(folder):
    status, output, error = run_command(("dedup", "stat", folder), {})
    assert status == 0 and error == ""
    seen = stat(folder)
    assert f"seed      {seen['seed']}" in output and "4h in 4 slices of 1h" in output
    assert "in use    by nobody" in output
    assert f"total     300 ids in {len(seen['files']) * 2} files of {seen['bytes']} bytes" in output
    rows = [row.split() for row in output.splitlines() if ".log" in row]
    assert [row[4] for row in rows if row[4] != "0"] == ["100", "100", "100"]


def test_sub_slices_are_told_apart(tmp_path):
    with Dedup(f"bloom ids=40 window=4h slices=4 path={tmp_path / 'dedup'}") as dedup:
        dedup.time(BEGIN)
        for i in range(30):
            dedup.check(i)
            dedup.done(i)
        dedup.checkpoint()
    held = [entry for entry in stat(tmp_path / "dedup")["files"] if entry["ids"]]
    assert [entry["sub"] for entry in held] == [0, 1, 2]
    assert sum(entry["ids"] for entry in held) == 30


def test_more_ids_than_planned_are_told_with_the_ids_that_fit(tmp_path):
    path = tmp_path / "dedup"
    with Dedup(f"bloom ids=40 window=4h slices=4 path={path}") as dedup:
        dedup.time(BEGIN)
        assert stat(path)["fitting_ids"] is None
        dedup.check(*range(30))
        for i in range(30):
            dedup.done(i)
        dedup.checkpoint()
    seen = stat(path)
    assert seen["sub_slices"] > 0 and seen["fitting_ids"] == 120
    output = run_command(("dedup", "stat", path), {})[1]
    assert f"overfull  {seen['sub_slices']} sub-slices: more ids came than planned" in output
    assert "ids=120 fits the fullest slice" in output


def test_a_damaged_filter_shows_its_false_positives(tmp_path):
    """The map is of a process that was killed, and is used as it is."""
    path = tmp_path / "dedup"
    with Dedup(f"bloom ids=10k rate=1% window=4h slices=4 path={path}") as dedup:
        dedup.time(BEGIN)
        dedup.check(*range(2000))
        dedup.done(*range(2000))
        dedup.checkpoint()
        dedup.kill()
    log = max(stat(path)["files"], key=lambda entry: entry["ids"])["file"]
    map_ = (path / log).with_suffix(".map")
    assert 0 < stat(path)["false_rate"] < 0.01
    assert map_.name not in [finding["file"] for finding in stat(path)["findings"]]
    lines, = struct.unpack_from("<Q", map_.read_bytes(), 32)
    patch(map_, MAP_HEAD, b"\xff" * 64 * (lines // 4))
    seen = stat(path)
    assert seen["false_rate"] == pytest.approx(0.25, abs=0.02)
    assert "% of new ids are hits of a filter" in run_command(("dedup", "stat", path), {})[1]
    found, = (found for found in findings(path, 0) if map_.name in found)
    assert "answers stay right" in found and "the next alarm makes the filter anew" in found


def test_a_released_id_is_not_counted(tmp_path):
    path = tmp_path / "dedup"
    with Dedup(line("exact", path)) as dedup:
        dedup.check("a", "b")
        dedup.done("a", "b")
        dedup.release("a")
        dedup.checkpoint()
    seen = stat(path)
    assert seen["ids"] == 1 and sum(entry["released"] for entry in seen["files"]) == 1
    assert findings(path, 0) == []


@pytest.mark.parametrize("change, word", [
    (other_boot, "snapshot"),
    (lambda file: (other_boot(file), patch(file, 12, bytes(4))), "rebuilt"),
    (lambda file: (other_boot(file), flip(file, MAP_HEAD + 64)), "rebuilt"),
    (lambda file: patch(file, 8, struct.pack("<I", 1)), "rebuilt"),
    (lambda file: flip(file, MAP_HEAD + 64), "rebuilt"),  # and of this start of the machine,
    (lambda file: os.truncate(file, 5000), "rebuilt"),
    (lambda file: os.truncate(file, 10), "rebuilt"),
    (lambda file: os.remove(file), "rebuilt"),
], ids=["sealed", "not sealed", "changed", "other version", "changed meanwhile", "cut", "no head",
     "missing"])
def test_what_becomes_of_a_map_is_what_the_store_does(folder, change, word):
    change(logs(folder, "map")[1])
    seen = stat(folder)
    assert [e["map"] for e in seen["files"] if e["ids"]] == ["as it is", word, "as it is"]
    assert len(findings(folder, 0)) == (word == "rebuilt")
    with Dedup(line("bloom", folder)) as dedup:
        dedup.time(BEGIN)
        assert dedup.check(*range(300)) == ["done"] * 300
        assert dedup.stats()["rebuilt"] == (word == "rebuilt")


# --- promises that nothing else tries ----------------------------------------------------------


def test_an_id_takes_the_disk_that_its_store_promises(tmp_path):
    ids = 20_000
    for store in ("bloom", "exact"):
        with Dedup(f"{store} ids={ids} window=24h path={tmp_path / store}"
                   + (" slices=1" if store == "bloom" else "")) as dedup:
            for first in range(0, ids, 1000):
                dedup.check(*range(first, first + 1000))
                dedup.done(*range(first, first + 1000))
            dedup.checkpoint()
    log = max(stat(tmp_path / "bloom")["files"], key=lambda entry: entry["ids"])
    lines, buckets = struct.unpack_from(
        "<QQ", (tmp_path / "bloom" / log["file"]).with_suffix(".map").read_bytes(), 32)
    assert log["ids"] == ids and log["bytes"] == pytest.approx(32 * ids, rel=0.001)
    assert buckets * 64 == pytest.approx(8 * ids, rel=0.001)
    body = (lines + buckets) * 64
    assert log["map_bytes"] == MAP_HEAD + body + (body + 65535) // 65536 * 8
    assert stat(tmp_path / "exact")["bytes"] == pytest.approx(32 * ids, rel=0.01)


@pytest.mark.parametrize("counter, rate, bits", [
    (4, "1%", 86), (4, "0.1%", 144), (8, "1%", 172), (8, "0.1%", 288)])
def test_an_id_takes_the_bits_that_counting_promises(tmp_path, counter, rate, bits):
    path = tmp_path / "dedup"
    with Dedup(f"counting lossy ids=1M rate={rate} counter={counter} path={path}") as dedup:
        dedup.check("a")
        dedup.done("a")
        of_slice = dedup.stats()["memory"] - MAPPED_HEAD
    assert bits - 2 < of_slice * 6 * 8 / 1_000_000 <= bits + 1


def saturated(path):
    """The line of `dedup stat`, and that of `dedup verify`."""
    _, output, _ = run_command(("dedup", "stat", path), {})
    _, checked = verify(path)
    return [[line for line in lines if line.startswith("saturated ")]
            for lines in (output.splitlines(), checked)]


@pytest.mark.parametrize("store, counter", [("counting", 4), ("counting8", 8)])
def test_saturated_counters_are_shown_by_stat_and_verify(tmp_path, store, counter):
    path = tmp_path / "dedup"
    fill(path, store)
    entries = [entry for entry in stat(path)["files"] if entry["ids"]]
    counters = sum(entry["bytes"] - MAPPED_HEAD for entry in entries) * 8 // counter
    assert {entry["counter_bits"] for entry in entries} == {counter}
    assert sum(entry["counters"] for entry in entries) == counters
    assert saturated(path) == [[f"saturated 0 of {counters} counters"]] * 2

    # The last 16 bytes are full, and the head counts them, as the store does when it fills them.
    file = path / entries[1]["file"]
    before = file.read_bytes()
    patch(file, -16, b"\xff" * 16)
    full = 16 * 8 // counter
    assert f"saturated {full} of {counters} counters: " in saturated(path)[1][0]
    patch(file, 72, struct.pack("<Q", full))
    for shown in saturated(path):
        assert len(shown) == 1 and f"saturated {full} of {counters} counters: " in shown[0]
    seen = stat(path)
    assert seen["saturated"] == full
    assert sorted(entry["saturated"] for entry in seen["files"]) == [0, 0, full]
    assert findings(path, 0) == []
    with Dedup(line(store, path)) as dedup:
        assert dedup.stats()["saturated"] == full
    file.write_bytes(before)
    assert saturated(path) == [[f"saturated 0 of {counters} counters"]] * 2


@pytest.mark.parametrize("store", ["bloom", "bitmap"])
def test_a_store_without_counters_shows_no_saturation(tmp_path, store):
    path = tmp_path / "dedup"
    fill(path, store)
    assert saturated(path) == [[], []]
    assert stat(path)["saturated"] is None
    assert stat(path)["files"][0]["counter_bits"] is None


def test_another_width_of_counters_may_be_chosen_for_a_folder(tmp_path):
    path = tmp_path / "dedup"
    fill(path, "counting")
    with Dedup(line("counting8", path)) as dedup:
        assert dedup.check(*range(300)) == ["done"] * 300
        dedup.time(BEGIN + 3 * HOUR)
        assert dedup.check(*range(300, 400)) == ["new"] * 100
        dedup.done(*range(300, 400))
        dedup.checkpoint(4000)
    assert [entry["counter_bits"] for entry in stat(path)["files"]] == [4, 4, 4, 8]
    assert findings(path, 0) == []
    with Dedup(line("counting", path)) as dedup:
        assert dedup.check(*range(400)) == ["done"] * 400


@pytest.mark.parametrize("store", LINES)
def test_another_folder_has_not_seen_it(tmp_path, store):
    fill(tmp_path / "one", store)
    with Dedup(line(store, tmp_path / "other")) as dedup:
        dedup.time(BEGIN)
        assert dedup.check(*range(100)) == ["new"] * 100


def test_without_a_path_exact_forgets_all(tmp_path):
    for _ in range(2):
        with Dedup("exact ids=10") as dedup:
            assert dedup.check("a") == ["new"]
            dedup.done("a")
            dedup.checkpoint()


# --- what is looked at is left as it is ------------------------------------------------------------


@pytest.mark.parametrize("store", LINES)
def test_nothing_is_written(tmp_path, store):
    path = tmp_path / "dedup"
    fill(path, store)
    before = contents(path)
    stat(path)
    assert findings(path, 0) == []
    assert contents(path) == before


def test_a_folder_that_may_not_be_written_is_read(folder):
    for name in os.listdir(folder):
        os.chmod(folder / name, 0o444)
    os.chmod(folder, 0o555)
    for command in ("stat", "verify"):
        status, output, error = as_somebody(command, folder)
        assert status == 0 and "300 ids" in output, error


def test_a_folder_that_may_not_be_read_is_told(folder):
    status, _, error = as_somebody("stat", folder)
    assert status == DENIED and f"path={folder}" in error and "Permission denied" in error


def test_a_file_that_may_not_be_read_is_told(folder):
    os.chmod(folder, 0o755)
    os.chmod(folder / "window", 0o644)
    status, _, error = as_somebody("verify", folder)
    assert status == DENIED and f"path={folder}" in error and ".log cannot be read" in error


def test_a_folder_that_is_in_use_is_read(tmp_path):
    path = tmp_path / "dedup"
    with Dedup(line("bloom", path)) as dedup:
        dedup.check(*range(100))
        dedup.done(*range(100))
        dedup.checkpoint(100)
        dedup.check(*range(100, 150))
        dedup.done(*range(100, 150))  # in the map, and in no log
        seen = stat(path)
        assert seen["in_use"] and seen["process"] == dedup.process.pid
        assert seen["ids"] == 100 and seen["offset"] == 100
        status, lines = verify(path)
        assert status == 0 and f"by process {dedup.process.pid}" in lines[1]
        assert lines[-1].startswith("whole: 100 ids")
        assert dedup.check(150) == ["new"]
    assert not stat(path)["in_use"]


def test_a_killed_process_leaves_what_is_harmless(tmp_path):
    path = tmp_path / "dedup"
    dedup = Dedup(line("bloom", path))
    dedup.check(*range(100))
    dedup.done(*range(60))
    dedup.checkpoint()
    dedup.done(*range(60, 100))
    dedup.kill()
    status, lines = verify(path)
    assert status == 0 and lines[-1].startswith("whole: 60 ids"), lines


@pytest.mark.rotated
@pytest.mark.parametrize("store", LINES)
def test_a_store_that_is_written_meanwhile_is_never_called_damaged(tmp_path, store):
    path = tmp_path / "dedup"
    with Dedup(line(store, path)) as dedup:
        for turn in range(30):
            ids = range(turn * 50, turn * 50 + 50)
            dedup.time(BEGIN + turn * HOUR)
            dedup.check(*ids)
            dedup.say("done", *ids)
            dedup.say("checkpoint", turn)
            assert all("is being made" in found or "being written" in found
                       for found in findings(path, 0))
            assert stat(path)["in_use"]
            dedup.answer(), dedup.answer()


# --- damage --------------------------------------------------------------------------------------


def test_a_whole_folder_is_whole(folder):
    status, lines = verify(folder)
    assert status == 0
    assert lines[-1].startswith("whole: 300 ids in ") and lines[-1].endswith("0 damaged, 0 harmless")


@pytest.mark.parametrize("at, byte", [
    (2 * UNIT, 64),           # the checksum of a batch
    (2 * UNIT + 24, 64),      # its offset
    (2 * UNIT + 16, 64),      # how many ids it has
    (2 * UNIT + 50 * UNIT, 64),
], ids=["checksum", "offset", "count", "id"])
@pytest.mark.parametrize("store", ["bloom", "exact"])
def test_damage_before_what_is_whole_is_told(tmp_path, store, at, byte):
    path = tmp_path / "dedup"
    fill(path, store, batches=(0,))
    with Dedup(line(store, path)) as dedup:
        dedup.time(BEGIN)
        dedup.check("more")
        dedup.done("more")
        dedup.checkpoint()
    flip(logs(path)[0], at)
    lines = findings(path, FOUND)
    assert f"{logs(path)[0].name} at byte {byte}: " in lines[0]
    assert "are damaged, which were whole: ids are lost" in lines[0]
    assert stat(path)["files"][0]["damaged"]


def test_a_torn_tail_is_told_from_damage(folder):
    last = logs(folder)[-1]
    size = last.stat().st_size
    with open(last, "ab") as file:
        file.write(b"half a batch")
    assert one(folder, 0, "harmless", "torn tail of 12 bytes", "will be cut").startswith(
        f"harmless: {last.name} at byte {size}: ")
    with Dedup(line("bloom", folder)):
        pass
    assert findings(folder, 0) == []


@pytest.mark.parametrize("store", ["bloom", "exact"])
def test_a_tail_that_was_durable_is_damage(tmp_path, store):
    path = tmp_path / "dedup"
    fill(path, store)
    last = logs(path)[-1]
    flip(last, -1)
    lines = findings(path, FOUND)
    assert f"damaged: {last.name} at byte 64: " in lines[0] and "were whole" in lines[0]
    if store == "exact":  # of bloom, an id of it has to be asked for
        with pytest.raises(DedupError, match="damaged at byte 64"):
            Dedup(line(store, path))


def test_what_was_not_durable_is_cut_with_all_that_follows(folder):
    last = logs(folder)[-1]
    with Dedup(line("bloom", folder)) as dedup:
        dedup.time(BEGIN + 2 * HOUR)
        begin, head = last.stat().st_size, last.read_bytes()[:2 * UNIT]
        for name in ("more", "others"):
            dedup.check(name)
            dedup.done(name)
            dedup.checkpoint()
    patch(last, 0, head)
    flip(last, begin + UNIT)
    os.remove(last.with_suffix(".map"))
    lines = findings(folder, 0)
    assert f"harmless: {last.name} at byte {begin}: torn tail of 128 bytes" in lines[0]
    with Dedup(line("bloom", folder)) as dedup:
        dedup.time(BEGIN + 2 * HOUR)
        assert dedup.check("more", "others", *range(300)) == ["new"] * 2 + ["done"] * 300


@pytest.mark.parametrize("boot", [lambda file: None, other_boot], ids=["same boot", "snapshot"])
@pytest.mark.parametrize("size", [0, 20, 64, 96], ids=str)
def test_a_log_that_is_shorter_than_its_map_knows_is_refused(folder, boot, size):
    last = logs(folder)[-1]
    boot(last.with_suffix(".map"))
    os.truncate(last, size)
    assert any(f"damaged: {last.name} at byte {size}: it is shorter" in found
               for found in findings(folder, FOUND))
    assert "refused" in [entry["map"] for entry in stat(folder)["files"]]
    with pytest.raises(DedupError, match="shorter than it was"):
        Dedup(line("bloom", folder))


@pytest.mark.parametrize("at, value, words", [
    (0, b"X", "is no key log"),
    (8, struct.pack("<I", 1), "another version"),
    (12, struct.pack("<I", 9), "damaged head"),
    (40, b"\xfe\x01", "damaged head"),
    (48, b"\xfe\x01", "damaged head"),
], ids=["magic", "version", "sub", "checksum", "durable"])
def test_a_damaged_head_of_a_log_is_told_and_refused(folder, at, value, words):
    patch(logs(folder)[1], at, value)
    one(folder, FOUND, f"damaged: {logs(folder)[1].name} at byte 0: ", words, "refused")
    with pytest.raises(DedupError, match=words):
        Dedup(line("bloom", folder))


def test_a_log_of_another_folder_is_told_and_refused(folder, tmp_path):
    fill(tmp_path / "other")
    shutil.copy(logs(tmp_path / "other")[1], logs(folder)[1])
    one(folder, FOUND, "another seed")
    with pytest.raises(DedupError, match="another seed"):
        Dedup(line("bloom", folder))


def test_a_log_under_the_name_of_another_slice_is_told_and_refused(folder):
    shutil.copy(logs(folder)[0], logs(folder)[1])
    one(folder, FOUND, "another slice")
    with pytest.raises(DedupError, match="another slice"):
        Dedup(line("bloom", folder))


def test_a_map_without_its_log_is_told_and_refused(folder):
    gone = logs(folder)[1]
    os.remove(gone)
    missing, lone = findings(folder, FOUND)
    assert missing.startswith("damaged: files: ") and "missing" in missing
    assert lone.startswith(f"damaged: {gone.with_suffix('.map').name}: it is there without its key log")
    with pytest.raises(DedupError, match="without its key log"):
        Dedup(line("bloom", folder))


@pytest.mark.parametrize("store, end", [("bloom", "log"), ("exact", "log"), ("counting", "counts")])
def test_a_slice_that_is_missing_is_told_and_refused(tmp_path, store, end):
    path = tmp_path / "dedup"
    fill(path, store)
    gone = next(entry for entry in stat(path)["files"] if entry["ids"])["file"]
    for name in os.listdir(path):
        if name.startswith(gone.split(".")[0]):
            os.remove(path / name)
    one(path, FOUND, "damaged: files: of slice ", "is missing")
    with pytest.raises(DedupError, match=f"{gone} is missing"):
        Dedup(line(store, path))


@pytest.mark.parametrize("store", ["bitmap", "bithash", "bitmap window", "bithash window"])
def test_a_file_of_bits_that_is_missing_is_told_and_refused(tmp_path, store):
    path = tmp_path / "dedup"
    fill(path, store)
    if store.startswith("bitmap"):  # a second file in a slice
        with Dedup(line(store, path)) as dedup:
            dedup.time(BEGIN)
            dedup.check(9_000_000)
            dedup.done(9_000_000)
            dedup.checkpoint()
    gone = sorted(name for name in os.listdir(path) if name.endswith(".bits"))[0]
    slice = gone.split(".")[0]
    count = sum(name.startswith(f"{slice}.") for name in os.listdir(path))
    os.remove(path / gone)
    one(path, FOUND, f"damaged: files: of slice {slice} some of the {count} files are missing")
    with pytest.raises(DedupError, match=rf"some of the {count} files {slice}\.\*\.bits are missing"):
        Dedup(line(store, path))


@pytest.mark.parametrize("store", ["exact", "counting", "bitmap window", "bithash window"])
def test_slices_that_expired_after_the_last_checkpoint_are_not_lost(tmp_path, store):
    """The list of files still has these slices when the process is killed."""
    path = tmp_path / "dedup"
    fill(path, store)
    listed = os.listdir(path)
    dedup = Dedup(line(store, path))
    dedup.time(BEGIN + 20 * HOUR)
    assert dedup.check(*range(1000, 1010)) == ["new"] * 10
    dedup.done(*range(1000, 1010))
    wait_for(lambda: set(listed) - set(os.listdir(path)), 20, "the removal of a slice, by a thread")
    dedup.kill()

    status, lines = verify(path)
    assert not [found for found in lines if found.startswith("damaged: files")], lines
    assert status == 0, lines
    Dedup(line(store, path)).close()


def test_a_filter_that_lacks_ids_is_told_and_mended_as_it_says(folder):
    file = logs(folder, "map")[0]
    lines = struct.unpack_from("<Q", file.read_bytes(), 32)[0]
    patch(file, MAP_HEAD, bytes(lines * 64))
    patch(file, 12, bytes(4))  # not sealed: as a killed process leaves it
    found = one(folder, FOUND, f"damaged: {file.name} at byte ", "the filter lacks 100 of the 100")
    assert MAP_HEAD <= int(found.split("byte ")[1].split(":")[0]) < MAP_HEAD + lines * 64
    os.remove(file)
    one(folder, 0, "it has no map")
    with Dedup(line("bloom", folder)) as dedup:
        assert dedup.check(*range(100)) == ["done"] * 100
    assert findings(folder, 0) == []


def test_an_index_that_lacks_ids_is_told(folder):
    file = logs(folder, "map")[0]
    lines, buckets = struct.unpack_from("<QQ", file.read_bytes(), 32)
    patch(file, MAP_HEAD + lines * 64, bytes(buckets * 64))
    patch(file, 12, bytes(4))
    found = one(folder, FOUND, "the index lacks 100 of the 100 ids")
    assert int(found.split("byte ")[1].split(":")[0]) >= MAP_HEAD + lines * 64


@pytest.mark.parametrize("at", [0, 8, 20, 56], ids=["magic", "version", "seed", "checksum"])
def test_a_damaged_file_window_is_told_and_refused(folder, at):
    flip(folder / "window", at)
    one(folder, FOUND, "damaged: window at byte 0: ", "use a new folder")
    with pytest.raises(DedupError, match="'window' is damaged"):
        Dedup(line("bloom", folder))


def test_a_missing_file_window_is_told(folder):
    os.remove(folder / "window")
    one(folder, FOUND, "damaged: window at byte 0: ", "is missing")


@pytest.mark.parametrize("store, name", [("counting", ".counts"), ("bitmap", ".bits"), ("bithash window", ".bits"),
                                         ("bithash", ".bits"), ("bitmap", "offset")])
@pytest.mark.parametrize("at, value, words", [
    (0, b"X", "is of something else"), (8, b"\x02", "another version"),
    (16, b"\xff", "damaged head"), (24, b"\xff\xfe\xfd", "damaged head"), (12, b"\x04", "damaged head")],
    ids=["magic", "version", "bytes", "seed", "kind"])
def test_a_damaged_head_of_a_mapped_file_is_told_and_refused(
        tmp_path, store, name, at, value, words):
    path = tmp_path / "dedup"
    fill(path, store)
    file = next(entry for entry in sorted(os.listdir(path)) if entry.endswith(name))
    patch(path / file, at, value)
    one(path, FOUND, f"damaged: {file} at byte 0: ", words, "refused")
    with pytest.raises(DedupError, match=words):
        Dedup(line(store, path))


@pytest.mark.parametrize("store", ["counting", "counting8", "bitmap", "bitmap window"])
def test_a_body_with_less_than_it_counts_is_told(tmp_path, store):
    path = tmp_path / "dedup"
    fill(path, store)
    name = next(entry["file"] for entry in stat(path)["files"] if entry["ids"])
    size = (path / name).stat().st_size
    patch(path / name, MAPPED_HEAD, bytes(size - MAPPED_HEAD))
    one(path, FOUND, f"damaged: {name} at byte {MAPPED_HEAD}: ", "and has 0 of them")


def test_a_mapped_file_that_was_cut_is_told_and_refused(tmp_path):
    path = tmp_path / "dedup"
    fill(path, "counting")
    name = next(entry["file"] for entry in stat(path)["files"] if entry["ids"])
    os.truncate(path / name, 4096 + 64)
    one(path, FOUND, f"damaged: {name} at byte 0: ", "shorter or longer")
    with pytest.raises(DedupError, match="shorter or longer"):
        Dedup(line("counting", path))


def test_the_positions_of_sequence_are_read(tmp_path):
    path = tmp_path / "d"
    with Dedup(f"sequence path={path}") as dedup:
        dedup.check("2:orders:1a2b3c4d:0:5:1:2")
        dedup.done("2:orders:1a2b3c4d:0:5:1:2")
        dedup.checkpoint(7)
        assert stat(path)["files"][0]["offset"] == 7
        assert findings(path, 0) == []
    with open(path / "positions", "ab") as file:
        file.write(b"x")
    assert "positions" in findings(path, FOUND)[0]
    with pytest.raises(DedupError, match="damaged"):
        Dedup(f"sequence path={path}")


def test_a_file_of_somebody_else_is_left_alone(folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "bad\udcff\x1bname").write_text("mine")
    lines = findings(folder, 0)
    assert len(lines) == 2 and all("no file of this store" in found for found in lines)
    assert not any("\x1b" in found for found in lines)
    assert len(stat(folder)["findings"]) == 2


def test_a_foreign_file_under_a_name_of_the_store_is_told(folder):
    (folder / "7.0.log").write_bytes(os.urandom(5000))
    one(folder, FOUND, "damaged: 7.0.log at byte 0: ", "is no key log")


@pytest.mark.parametrize("command", ["stat", "verify"])
def test_what_is_no_folder_of_a_store_is_told(tmp_path, command):
    for path, words in [(tmp_path / "none", "No such file"), (tmp_path, "no store of dedup"),
                        (binary(), "Not a directory")]:
        status, output, error = run_command(("dedup", command, path), {})
        assert status == CONFIG and output == "" and words in error and f"path={path}" in error


# --- load ----------------------------------------------------------------------------------------

REJECT, USAGE, AWAY, FENCED = 65, 64, 69, 75


@pytest.fixture
def orders(empty_database):
    """A business's table: id, created_at (an hour ago) and what the tests need."""
    empty_database.execute("create table orders (id text, number bigint, key uuid, bytes bytea, "
                           "created_at timestamptz default now() - interval '1 hour')")
    return empty_database


def add_orders(database, count):
    database.execute("insert into orders (id, number, key, bytes) select 'order-' || n, n, "
                     "lpad(to_hex(n), 32, '0')::uuid, decode(lpad(to_hex(n), 8, '0'), 'hex') "
                     f"from generate_series(1, {count}) n")


def load(database, line, query="select id, created_at from orders", *options, settings=None):
    return run_command(("dedup", "load", line, "--sql", query, "--dsn", database.dsn, *options),
                       settings or {})


def loaded(database, line, *arguments):
    """The ids that were new, and that were there."""
    status, output, error = load(database, line, *arguments)
    assert status == 0, error
    words = output.split()
    return int(words[1]), int(words[10])


def refused(database, line, query, status, *words):
    found, output, error = load(database, line, query)
    assert found == status and output == "", error
    for word in words:
        assert word in error, error
    return error


def test_100k_ids_are_loaded_once(orders, tmp_path):
    add_orders(orders, 100_000)
    to = f"bloom ids=200k path={tmp_path / 'dedup'}"
    assert loaded(orders, to) == (100_000, 0)
    seen = stat(tmp_path / "dedup")
    assert seen["ids"] == 100_000 and findings(tmp_path / "dedup", 0) == []
    created = orders.execute("select extract(epoch from created_at) * 1000 from orders limit 1")
    held = [entry for entry in seen["files"] if entry["ids"]]
    assert {entry["first_ms"] for entry in held} == {int(created[0][0])}
    assert loaded(orders, to) == (0, 100_000)
    with Dedup(to) as dedup:
        assert dedup.check("order-1", "order-100000", "order-0") == ["done", "done", "new"]


def test_more_than_the_line_has_room_for_are_loaded(orders, tmp_path):
    add_orders(orders, 30_000)
    status, output, error = load(orders, f"bloom ids=5k pending=7 path={tmp_path / 'dedup'}",
                                 "select id from orders", "--batch", "333")
    assert status == 0 and output.startswith("loaded 30000 new ids of 30000 rows"), error
    assert "has grown by 5 sub-slices: raise ids" in error
    assert findings(tmp_path / "dedup", 0) == []


def test_an_alarm_of_the_filter_is_told_by_the_load(orders, tmp_path):
    """The setting `alarm` is far below the planned rate."""
    add_orders(orders, 90_000)
    to = f"bloom ids=300k rate=20% alarm=0.1% path={tmp_path / 'dedup'}"
    status, output, error = load(orders, to, "select id from orders")
    assert status == 0 and output.startswith("loaded 90000 new ids of 90000 rows"), error
    assert re.search(r"and [1-9] filters were made anew: raise ids or alarm", error), error
    assert loaded(orders, to) == (0, 90_000)


@pytest.mark.parametrize("column, first", [
    ("id", "order-1"), ("id::varchar(40)", "order-1"), ("number", "1"), ("number::int", "1"),
    ("number::smallint", "1"), ("key", "00000000-0000-0000-0000-000000000001"),
    ("bytes", "hex:00000001"), ("id || 'é'", "order-1é")])
def test_an_id_is_the_bytes_that_consumers_see(orders, tmp_path, column, first):
    add_orders(orders, 10)
    to = f"exact ids=100 path={tmp_path / 'dedup'}"
    assert loaded(orders, to, f"select {column} from orders;  ") == (10, 0)
    with Dedup(to) as dedup:
        assert dedup.check(first) == ["done"]


@pytest.mark.parametrize("store", LINES)
def test_each_local_store_is_loaded(orders, tmp_path, store):
    add_orders(orders, 500)
    to = line(store, tmp_path / "dedup")
    query = "select number, created_at from orders -- all of them"
    new, there = loaded(orders, to, query)
    assert new + there == 500 and (new == 500 or "lossy" in to)
    assert loaded(orders, to, query) == (0, 500)


VALGRIND = ("valgrind", "-q", "--leak-check=full", "--errors-for-leak-kinds=definite",
            "--error-exitcode=99")


@pytest.mark.rotated
@pytest.mark.parametrize("store", ["bloom", "exact", "counting", "bitmap", "bitmap window", "sequence"])
def test_valgrind_has_nothing_to_say(orders, tmp_path, store):
    """A store that is made, opened again, and looked at: bloom with sub-slices."""
    path = tmp_path / "dedup"
    to = f"sequence path={path}" if store == "sequence" else line(store, path)
    query = ("select '2:orders:1a2b3c4d:0:5:1:' || number from orders order by number"
             if store == "sequence" else "select number, created_at from orders")
    add_orders(orders, 3000)
    load_it = ("dedup", "load", to, "--sql", query, "--dsn", orders.dsn)
    for command in (load_it, load_it, ("dedup", "stat", path), ("dedup", "verify", path)):
        run = subprocess.run([*VALGRIND, binary(), *command], capture_output=True, text=True,
                             timeout=300, env=environment())
        assert run.returncode == 0 and "== " not in run.stderr, run.stderr


def test_the_store_postgres_is_loaded(database):
    database.execute("create table orders as select n as id, now() as created_at "
                     "from generate_series(1, 2500) n")
    to = f'postgres name=billing dsn="{database.dsn}"'
    assert loaded(database, to) == (2500, 0)
    assert database.execute("select count(*) from outbox.processed")[0][0] == 2500
    assert loaded(database, to) == (0, 2500)


def test_copies_are_counted(orders, tmp_path):
    orders.execute("insert into orders (id) select 'same' from generate_series(1, 5)")
    status, output, _ = load(orders, line("bloom", tmp_path / "dedup"))
    assert status == 0 and output.startswith("loaded 1 new ids of 5 rows in ")
    assert output.endswith("; 0 were there, 4 came twice or are being handled\n")


def test_nothing_to_load_is_no_error(orders, tmp_path):
    assert loaded(orders, line("bloom", tmp_path / "dedup")) == (0, 0)


def test_the_database_of_the_configuration_is_asked(orders, tmp_path):
    add_orders(orders, 3)
    status, output, error = run_command(
        ("dedup", "load", line("exact", tmp_path / "dedup"), "--sql", "select id from orders"),
        {"DATABASE_URL": orders.dsn})
    assert status == 0 and output.startswith("loaded 3 "), error


def test_it_tells_how_far_it_is(orders, tmp_path):
    add_orders(orders, 200)
    status, _, error = load(orders, line("bloom", tmp_path / "dedup"),
                            "select id from orders where pg_sleep(0.015) is not null",
                            "--batch", "10")
    assert status == 0
    steps = re.findall(r"^ids: (\d+), (\d+)/s, elapsed (\d+) s$", error, re.MULTILINE)
    assert len(steps) >= 2 and len(steps) == len(error.splitlines())
    assert [int(step[2]) for step in steps] == list(range(1, len(steps) + 1))
    assert 0 < int(steps[0][0]) < int(steps[1][0]) < 200


@pytest.mark.parametrize("query, words", [
    ("insert into orders (id) values ('a') returning id", ["syntax error"]),
    ("delete from orders", ["syntax error"]),
    ("with gone as (delete from orders returning id) select id from gone", ["top level"]),
    ("select nextval('numbers')::text", ["read-only transaction"]),
    ("nonsense", ["syntax error"]),
    ("select id from orders; drop table orders", ["syntax error"]),
    ("select id from nowhere", ['relation "nowhere" does not exist']),
    ("select none from orders", ['column "none" does not exist']),
    ("select id, created_at, number from orders", ["returns 3 columns"]),
    ("select from orders", ["returns 0 columns"]),
    ("select created_at from orders", ["first column", "timestamp with time zone", "id::text"]),
    ("select '{}'::json", ["first column", "json"]),
    ("select id, number from orders", ["second column", "bigint", "timestamptz"]),
    ("select id, created_at::timestamp from orders", ["second column", "without time zone"]),
    ("select (1 / (number - number))::text from orders", ["division by zero"]),
])
def test_a_query_that_is_none_is_refused(orders, tmp_path, query, words):
    add_orders(orders, 10)
    orders.execute("create sequence numbers")
    error = refused(orders, line("bloom", tmp_path / "dedup"), query, REJECT, "--sql", *words)
    assert "migrate" not in error and "standby" not in error
    assert orders.execute("select count(*) from orders") == [(10,)]


@pytest.mark.parametrize("values, words", [
    ("(null, now())", ["its id is null", "is not null"]),
    ("('', now())", ["its id is empty"]),
    ("(repeat('x', 1025), now())", ["1025 bytes", "at most are 1024", "sha256"]),
    ("('a', null)", ["its time is null or infinite", "coalesce"]),
    ("('a', 'infinity')", ["its time is null or infinite"]),
])
def test_a_row_that_cannot_be_loaded_is_named_and_those_before_it_stay(
        orders, tmp_path, values, words):
    add_orders(orders, 2500)
    orders.execute(f"insert into orders (id, created_at) values {values}")
    to = line("bloom", tmp_path / "dedup")
    error = refused(orders, to, "select id, created_at from orders", REJECT, "row 2501: ", *words)
    assert "2000 new ids were loaded before, and stay" in error
    assert stat(tmp_path / "dedup")["ids"] == 2000
    orders.execute("delete from orders where number is null")
    assert loaded(orders, to) == (500, 2000)


def test_an_id_that_the_store_refuses_is_named(orders, tmp_path):
    orders.execute("insert into orders (id) values ('7'), ('seven')")
    refused(orders, line("bitmap", tmp_path / "dedup"), "select id from orders", REJECT,
            "rows 1 to 2 of --sql", "'seven' is no id of a bitmap")


def test_a_time_before_1970_is_old_and_not_now(orders, tmp_path):
    orders.execute("insert into orders (id, created_at) values ('old', '1960-01-01')")
    assert loaded(orders, line("bloom", tmp_path / "dedup")) == (1, 0)
    held = [entry for entry in stat(tmp_path / "dedup")["files"] if entry["ids"]]
    assert [entry["first_ms"] for entry in held] == [0]


def test_a_database_that_does_not_answer_is_told(tmp_path):
    to = line("bloom", tmp_path / "dedup")
    status, output, error = run_command(
        ("dedup", "load", to, "--sql", "select 'a'", "--dsn", "host=127.0.0.1 port=1"), {})
    assert status == AWAY and output == "" and "127.0.0.1:1" in error and "Connection refused" in error
    assert not (tmp_path / "dedup").exists()


def test_a_database_that_goes_away_leaves_what_was_loaded(orders, tmp_path):
    add_orders(orders, 3000)
    to = line("bloom", tmp_path / "dedup")
    error = refused(
        orders, to, "select id from orders where case when number < 2001 then true else "
        "pg_terminate_backend(pg_backend_pid()) end order by number", AWAY, "127.0.0.1")
    assert "new ids were loaded before, and stay" in error or stat(tmp_path / "dedup")["ids"] == 0
    assert sum(loaded(orders, to)) == 3000


def test_a_store_that_is_in_use_is_told(orders, tmp_path):
    to = line("bloom", tmp_path / "dedup")
    with Dedup(to):
        refused(orders, to, "select id from orders", FENCED, f"path={tmp_path / 'dedup'}",
                "is open in another process")


@pytest.mark.parametrize("to, status, words", [
    ("bloom path=/nowhere", CONFIG, ["ids is missing"]),
    ("blooom ids=1", CONFIG, ["is no store"]),
    ("exact ids=10", CONFIG, ["path is missing", "forgotten"]),
    ("bloom ids=1k path=/nowhere/at/all", CONFIG,
     ["path=/nowhere/at/all", "cannot be made", "make the folder that it is in"]),
])
def test_a_line_that_cannot_be_opened_is_told(orders, to, status, words):
    refused(orders, to, "select id from orders", status, *words)


def test_a_call_without_a_query_is_told():
    status, _, error = run_command(("dedup", "load", "bloom ids=1k path=/nowhere"), {})
    assert status == USAGE and "--sql is missing" in error
