"""A process that records and acknowledges ids is killed again and again: what it acknowledged, it
remembers, and what it never was told, it does not know."""

import signal
import time

import pytest

from support.dedup import Dedup
from support.relay import run_command

HOUR = 3_600_000
LOG_POINTS = ("before_key_log_write", "after_key_log_write", "before_dedup_offset")
BITS_POINTS = ("before_bits_removal", "before_dedup_offset")
# The time of the records goes on by an hour each few batches; slices are of two hours.
STORES = {
    "bloom": ("bloom ids=20k window=10h slices=5", LOG_POINTS),
    "exact": ("exact ids=20k window=10h", LOG_POINTS),
    "counting": ("counting lossy ids=20k rate=0.0000001% window=10h slices=5 counter=8", LOG_POINTS),
    "bitmap": ("bitmap ids=40M window=10h slices=5", BITS_POINTS),
}


class Spread(Dedup):
    """Its ids are in all of the ten files that a slice of the bitmap can have."""

    def check(self, *ids):
        return super().check(*spread(ids))

    def done(self, *ids):
        return super().done(*spread(ids))

    def release(self, *ids):
        return super().release(*spread(ids))


def spread(ids):
    return [number * 1_000_003 % 40_000_000 for number in ids]


class World:
    """What was acknowledged, by record time; and the process that is to remember it."""

    def __init__(self, store, path, chance):
        line, self.points = STORES[store]
        self.kind = Spread if store == "bitmap" else Dedup
        self.line = f"{line} path={path}"
        self.chance = chance
        self.now = int(time.time() * 1000) - 5000 * HOUR
        self.acknowledged = {}
        self.next, self.offset, self.suicides = 1, -1, 0

    def fault(self):
        """Nothing, or a point at which the process kills itself."""
        if self.chance.random() < 0.5:
            return {}
        return {"OUTBOX_RELAY_FAULT": f"{self.chance.choice(self.points)}:{self.chance.randint(1, 12)}"}

    def check_all(self, dedup):
        """The whole window is remembered, to both of its ends."""
        ids = [number for number, at in self.acknowledged.items() if at > self.now - 10 * HOUR]
        for first in range(0, len(ids), 1000):
            row = ids[first:first + 1000]
            forgotten = [number for number, state in zip(row, dedup.check(*row)) if state != "done"]
            assert not forgotten, f"{forgotten} of {len(ids)} were acknowledged"
        assert dedup.stats()["offset"] >= self.offset

    def check_no_others(self, dedup):
        fresh = [self.next + i for i in range(100)]
        assert set(dedup.check(*fresh)) == {"new"}
        dedup.release(*fresh)

    def record(self, dedup, row, at):
        dedup.time(at)
        assert set(dedup.check(*row)) == {"new"}
        dedup.done(*row)

    def record_again(self, dedup):
        """Ids whose window was over a moment ago, as far as they are forgotten; their times."""
        over = [number for number, at in self.acknowledged.items()
                if -12 * HOUR < at - self.now < -10 * HOUR]
        row = self.chance.sample(over, min(len(over), 20))
        if not row:
            return {}
        dedup.time(self.now)
        new = [number for number, state in zip(row, dedup.check(*row)) if state == "new"]
        dedup.done(*new)
        return dict.fromkeys(new, self.now)

    def batch(self, dedup):
        """Some ids from check to checkpoint; sometimes with the kill in the midst of that."""
        if self.chance.random() < 0.3:
            self.now += HOUR
        again = self.record_again(dedup)
        late = self.now - self.chance.randrange(10) * HOUR
        first, self.next = self.next, self.next + self.chance.randint(2, 200)
        middle = self.chance.randint(first + 1, self.next - 1)
        self.record(dedup, range(first, middle), self.now)
        self.record(dedup, range(middle, self.next), late)
        dedup.say("checkpoint", self.next)
        if self.chance.random() < 0.1:
            time.sleep(self.chance.random() * 0.002)  # the kill is to come at any moment
            dedup.process.kill()
        assert dedup.answer() == "ok"
        self.acknowledged.update(again)
        self.acknowledged.update((number, self.now) for number in range(first, middle))
        self.acknowledged.update((number, late) for number in range(middle, self.next))
        self.offset = self.next

    def live(self):
        """One life of the process; it ends by a kill."""
        try:
            with self.kind(self.line, env=self.fault()) as dedup:
                self.check_all(dedup)
                self.check_no_others(dedup)
                for _ in range(self.chance.randint(1, 20)):
                    self.batch(dedup)
                self.check_all(dedup)
                dedup.kill()
        except (EOFError, BrokenPipeError):
            self.suicides += 1


@pytest.mark.parametrize("store, lives", [("bloom", 1000), ("exact", 500), ("counting", 300), ("bitmap", 500)])
def test_no_acknowledged_id_is_forgotten(tmp_path, chance, scale, store, lives):
    world = World(store, tmp_path / "dedup", chance)
    for _ in range(scale(lives)):
        world.live()
    with world.kind(world.line) as dedup:
        world.check_all(dedup)
        world.check_no_others(dedup)
    assert world.suicides > scale(lives) / 5  # by the fault points, and in a checkpoint


def look_at_new_ids(dedup, first, count):
    for at in range(first, first + count, 1000):
        row = range(at, at + 1000)
        assert set(dedup.check(*row)) == {"new"}
        dedup.release(*row)


@pytest.mark.parametrize("point", ["before_map_repair", "in_map_rebuild"])
def test_a_kill_in_the_repair_of_a_filter_forgets_nothing(tmp_path, point):
    """The filter is overfilled, since `alarm` is far below the planned rate."""
    line = f"bloom ids=100k rate=20% alarm=0.1% window=10h path={tmp_path / 'dedup'}"
    with Dedup(line, env={"OUTBOX_RELAY_FAULT": point}) as dedup:
        for first in range(0, 19_000, 1000):
            dedup.check(*range(first, first + 1000))
            dedup.done(*range(first, first + 1000))
        dedup.checkpoint()
        look_at_new_ids(dedup, 1_000_000, 66_000)
        assert dedup.stats()["alarm"] == 1
        with pytest.raises((EOFError, BrokenPipeError)):
            dedup.checkpoint()
    with Dedup(line) as dedup:
        assert dedup.stats()["rebuilt"] == 1
        for first in range(0, 19_000, 1000):
            assert set(dedup.check(*range(first, first + 1000))) == {"done"}
        look_at_new_ids(dedup, 2_000_000, 66_000)
        dedup.checkpoint()
        # a map that was being made had its size already, and got its ids at the start
        stats = dedup.stats()
        assert (stats["alarm"], stats["repairs"]) == (0, int(point == "before_map_repair"))


class Load:
    """`dedup load` of 6,000 ids, in batches of 1,000."""

    def __init__(self, database, path):
        database.execute(
            "CREATE TABLE orders AS SELECT 'order-' || n AS id FROM generate_series(1, 6000) n")
        self.path = path
        self.words = ("dedup", "load", f"bloom ids=20k path={path}", "--sql", "select id from orders",
                      "--dsn", database.dsn, "--batch", "1000")

    def kill(self, point):
        status, _, error = run_command(self.words, {"OUTBOX_RELAY_FAULT": point})
        assert status == -signal.SIGKILL, error

    def finish(self):
        """How many were new, and how many were there."""
        status, output, error = run_command(self.words)
        assert status == 0, error
        words = output.split()
        return int(words[1]), int(words[10])


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_load_that_is_killed_behind_a_batch_goes_on_there(empty_database, tmp_path, batch):
    load = Load(empty_database, tmp_path / "dedup")
    load.kill(f"after_dedup_load_batch:{batch}")
    assert run_command(("dedup", "verify", load.path))[0] == 0
    assert load.finish() == (6000 - batch * 1000, batch * 1000)


@pytest.mark.parametrize("point", ["before_key_log_write", "after_key_log_write"])
def test_a_load_that_is_killed_in_a_checkpoint_goes_on(empty_database, tmp_path, point):
    load = Load(empty_database, tmp_path / "dedup")
    load.kill(f"{point}:3")
    assert run_command(("dedup", "verify", load.path))[0] == 0
    assert sum(load.finish()) == 6000
