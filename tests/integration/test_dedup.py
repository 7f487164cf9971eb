"""`dedup size`: the figures hang together, and what cannot be sized is refused with the cure."""

import json

import pytest

from support.dedup import Dedup
from support.relay import run_command

USAGE = 64


def size(*arguments):
    status, output, error = run_command(("dedup", "size", "--json", *arguments), {})
    assert status == 0, error
    return json.loads(output)


@pytest.mark.parametrize("rate, most_bits", [("1%", 18), ("0.1%", 27), ("0.0001", 40)])
@pytest.mark.parametrize("slices", [5, 6, 7, 8])
def test_a_filter_keeps_its_rate_with_few_bits(rate, most_bits, slices):
    plan = size("--ids", "50M", "--rate", rate, "--window", "24h", "--slices", str(slices))
    assert plan["ids"] == 50_000_000 and plan["slices"] == slices
    assert plan["slice_ms"] == -(-86_400_000 // slices)
    assert plan["ids_a_slice"] * slices >= plan["ids"]
    assert plan["filter_bytes"] * 8 / plan["ids"] == pytest.approx(plan["bits_an_id"])
    assert plan["bits_an_id"] <= most_bits
    assert plan["bits_an_id"] > plan["classic"]["bits_an_id"]
    assert plan["window_rate"] == pytest.approx(1 - (1 - plan["slice_rate"]) ** (slices + 1))
    assert plan["window_rate"] <= plan["rate"]


def test_the_disk_is_what_a_store_takes(tmp_path):
    """As planned: all slices that are alive are full."""
    settings = "ids=60k rate=0.1% window=6h slices=6"
    plan = size("--ids", "60k", "--rate", "0.1%", "--window", "6h", "--slices", "6")
    with Dedup(f"bloom {settings} path={tmp_path / 'dedup'}") as dedup:
        for slice in range(7):
            dedup.time(1_700_000_000_000 // 3_600_000 * 3_600_000 + slice * 3_600_000)
            for first in range(slice * 10_000, (slice + 1) * 10_000, 1000):
                dedup.check(*range(first, first + 1000))
                dedup.done(*range(first, first + 1000))
        dedup.checkpoint()
        stats = dedup.stats()
    assert stats["ids"] == 70_000 and stats["slices"] == 7
    assert stats["disk"] == pytest.approx(plan["disk_bytes"], rel=0.001)
    assert plan["disk_bytes"] == pytest.approx(60_000 * plan["disk_bytes_an_id"])
    assert plan["log_bytes"] == pytest.approx(32 * 70_000, rel=0.001)
    assert plan["index_bytes"] == pytest.approx(8 * 70_000, rel=0.001)
    assert plan["disk_bytes"] > sum(plan[f"{part}_bytes"] for part in ("log", "index", "filter"))


def test_partitions_multiply_memory_and_disk():
    one, six = (size("--ids", "50M", *more) for more in ([], ["--partitions", "6"]))
    assert (one["partitions"], six["partitions"]) == (1, 6)
    for part in ("filter", "index", "disk"):
        assert one[f"total_{part}_bytes"] == one[f"{part}_bytes"] == six[f"{part}_bytes"]
        assert six[f"total_{part}_bytes"] == 6 * one[f"{part}_bytes"]
    _, output, _ = run_command(("dedup", "size", "--ids", "50M", "--partitions", "6"), {})
    assert f"total memory          {six['total_filter_bytes'] / 2 ** 20:.1f} MiB" in output


def test_thirty_days_of_daily_slices_are_one_window():
    plan = size("--ids", "30M", "--rate", "0.1%", "--window", "30d", "--slices", "30")
    assert plan["slice_ms"] == 86_400_000
    assert plan["window_rate"] <= 0.001


def test_people_read_the_same_figures():
    status, output, _ = run_command(("dedup", "size", "--ids", "1M", "--rate", "0.1%"), {})
    assert status == 0
    figures = dict(line.split("  ", 1) for line in output.splitlines())
    plan = size("--ids", "1M", "--rate", "0.1%")
    assert figures["bits an id"].strip() == (
        f"{plan['bits_an_id']:.2f} of the filter in memory; "
        f"{plan['disk_bytes_an_id']:.1f} bytes on disk")
    for name, bytes in (("index", "index"), ("key log", "log"), ("disk", "disk")):
        assert figures[name].strip().startswith(f"{plan[f'{bytes}_bytes'] / 2 ** 20:.1f} MiB")
    assert figures["classic formula"].strip().startswith(f"{plan['classic']['bits_an_id']:.2f} bits")


def test_the_memory_of_a_million_counters_is_that_of_the_usual_table():
    """1 bit, 4 bits, 8 bits a counter: 125 KB, 500 KB, 1 MB; and what a store takes for an id."""
    counters = size("--ids", "1M", "--rate", "1%")["counters"]
    assert [(row["bits"], row["bytes"]) for row in counters] == [
        (1, 125_000), (4, 500_000), (8, 1_000_000)]
    assert [row["bytes_an_id"] * 8 for row in counters] == pytest.approx([17.7, 86, 172], abs=0.1)
    for row in counters:
        assert row["memory_bytes"] == pytest.approx(row["bytes_an_id"] * 1_000_000)

    _, output, _ = run_command(("dedup", "size", "--ids", "1M", "--rate", "1%"), {})
    assert output.splitlines()[-3:] == [
        "counters of 1 bit     125 KB for 1000000 counters; bloom takes 2.2 bytes an id",
        "counters of 4 bits    500 KB for 1000000 counters; counting counter=4 takes 10.8 bytes an id",
        "counters of 8 bits    1 MB for 1000000 counters; counting counter=8 takes 21.5 bytes an id"]


@pytest.mark.parametrize("counter", [4, 8])
def test_counting_takes_the_memory_that_is_planned(tmp_path, counter):
    plan = next(row for row in size("--ids", "60k", "--window", "6h", "--slices", "6")["counters"]
                if row["store"] == f"counting counter={counter}")
    line = f"counting lossy ids=60k counter={counter} window=6h slices=6 path={tmp_path / 'dedup'}"
    with Dedup(line) as dedup:
        for slice in range(7):
            dedup.time(1_700_000_000_000 // 3_600_000 * 3_600_000 + slice * 3_600_000)
            dedup.check(slice)
            dedup.done(slice)
        stats = dedup.stats()
    assert stats["slices"] == 7
    assert stats["memory"] == plan["memory_bytes"] + 7 * 4096


@pytest.mark.parametrize("arguments, words", [
    ([], ["ids", "50M"]),
    (["--ids", "0"], ["ids '0'", "ids=50M"]),
    (["--ids", "many"], ["ids 'many'", "ids=50M"]),
    (["--ids", "50M", "--rate", "0"], ["rate '0'", "rate=0.1%"]),
    (["--ids", "50M", "--rate", "1"], ["rate '1'", "rate=0.1%"]),
    (["--ids", "50M", "--rate", "-1%"], ["rate '-1%'", "rate=0.1%"]),
    (["--ids", "50M", "--window", "24"], ["window '24'", "window=24h"]),
    (["--ids", "50M", "--window", "3ms"], ["window=3ms", "slices"]),
    (["--ids", "100G", "--rate", "0.0000001%"], ["MiB", "lower ids"]),
    (["--ids", "50M", "--slices", "99"], ["slices '99'", "1 to 31"]),
    (["--ids", "50M", "--partitions", "0"], ["--partitions wants a number from 1"]),
])
def test_what_cannot_be_sized_is_refused(arguments, words):
    status, output, error = run_command(("dedup", "size", *arguments), {})
    assert status == USAGE and output == ""
    for word in words:
        assert word in error, error
