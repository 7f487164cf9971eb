"""The doorbell in every interleaving: Spin explores bell.pml, and finds each mistake that is built in."""

import functools
import re
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("bell.pml")
MUTANTS = dict(re.findall(r"^#define (\w+) (\d+)", MODEL.read_text().split("byte mutant;")[0]
                          .split("MUTANT. */")[1], re.MULTILINE))
SEARCH_DEPTH = 4_000_000
MEMORY_MB = 2500


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """build(size): the folder with the program that explores the model in this size."""
    @functools.cache
    def made(size):
        folder = tmp_path_factory.mktemp("model")
        options, _ = {**SIZES, **LARGE}[size]
        subprocess.run(["spin", "-a", *options, MODEL], cwd=folder, check=True, capture_output=True, text=True)
        subprocess.run(["gcc", "-O1", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MB}", "-o", "explore", "pan.c"],
                       cwd=folder, check=True)
        return folder

    return made


def explore(folder, mutant="0"):
    outcome = subprocess.run(["./explore", f"-m{SEARCH_DEPTH}"], cwd=folder, capture_output=True, text=True,
                             env={"MUTANT": mutant}, check=False)
    return outcome.stdout + outcome.stderr


def faults_of(output):
    """What keeps a run from being a proof."""
    faults = re.findall(r"^pan:\d+:.*|^pan: reached.*|^error:.*|^Warning: Search not completed.*", output, re.MULTILINE)
    if not re.search(r"errors: 0$", output, re.MULTILINE):
        faults.append("no run to the end")
    return faults


# Each size of the model, and the mistakes that Spin must find in it. Large sizes are explored with --full only, but
# their mistakes are found at once.
SIZES = {
    "writers": (["-DPROBES_TAKE_TIME"],
                "NO_LOOK_AFTER_LOCK OLD_LOOK_COUNTS TEST_ENDS_AT_ONCE FREED_BEFORE_VISIBLE RING_IGNORED_WHILE_LOOKING "
                "RING_DOES_NOT_CLEAR MARK_MISSING LEAVES_AT_ONCE NO_PROBE NO_POLL_ASLEEP SLEEPS_ON_AFTER_RING "
                "LISTENS_LATE LEAVES_WITHOUT_MARK RING_IGNORED_WHILE_TRYING"),
    "silent": (["-DSILENT=1"], ""),
    "session lost": (["-DWRITERS=1", "-DLOSSES=1"], ""),
    "processes": (["-DPROBES_TAKE_TIME", "-DWRITERS=1", "-DSHARDS=2", "-DPROCESSES=2"], "PROBES_BESIDE_SLEEPER"),
    "crash": (["-DWRITERS=1", "-DSHARDS=2", "-DPROCESSES=2", "-DCRASHES=1"], "TAKEN_SHARD_DOES_NOT_LOOK"),
}
LARGE = {
    "writers and a lost session": (["-DLOSSES=1"], ""),
    "stranger": (["-DFOREIGNER=1"], ""),
    "shards": (["-DSHARDS=2"], "ONE_SHARD_IS_ENOUGH"),
}


def of_size(name, *marks):
    """Its tests share a build, so one worker has them."""
    return pytest.param(name, marks=[pytest.mark.xdist_group(name), *marks])


@pytest.mark.parametrize("size", [*map(of_size, SIZES),
                                  *(of_size(name, pytest.mark.full("the small sizes")) for name in LARGE)])
def test_no_message_waits_longer_than_the_poll_of_a_sleeping_shard(build, size):
    assert not faults_of(explore(build(size)))


@pytest.mark.parametrize("size", [of_size(name) for name, (_, mutants) in {**SIZES, **LARGE}.items() if mutants])
def test_the_model_finds_each_mistake(build, size, full, chance):
    """Without --full four of the mistakes of a size, others with another seed."""
    names = {**SIZES, **LARGE}[size][1].split()
    tried = names if full else chance.sample(names, min(4, len(names)))
    missed = [name for name in tried
              if not re.search(r"^pan:\d+: assertion violated", explore(build(size), MUTANTS[name]), re.MULTILINE)]
    assert not missed


def test_each_mistake_belongs_to_a_size():
    used = [name for _, mutants in {**SIZES, **LARGE}.values() for name in mutants.split()]
    assert sorted(used) == sorted(MUTANTS)
