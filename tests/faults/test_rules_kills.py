"""A process that judges messages by rules is killed again and again, and messages come again: those pass
that pass where nothing was ever killed, and what comes for the first time has the verdict that it has
there. What is refused may be so by an earlier rule when it comes again, beside messages that came later."""

import datetime
import zoneinfo

from support.dedup import Rules

POINTS = ("before_key_log_write", "after_key_log_write", "within_rules_log_remove")
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
BEGIN = int(datetime.datetime(2024, 10, 25, 12, tzinfo=BERLIN).timestamp() * 1000)
LATE = 600_000  # of a message; and what comes again after a kill goes back further
WITHIN, MOST, A_DAY = 10_000, 3, 600
LINES = (
    f"sliding name=burst most={MOST} within={WITHIN}ms late={{}} key=key action=drop",
    f"daily name=quota most={A_DAY} zone=Europe/Berlin late=6h key=key action=dead-letter",
    "sliding name=total most=5 within=1h key=topic action=count",
)
LATES = ("6h", "1d", "10d")  # each of them keeps what is to be known in logs of another width


class Model:
    """The rules, told as simply as can be."""

    def __init__(self):
        self.times, self.days = {}, {}

    @staticmethod
    def is_burst(times, time):
        near = sorted(at for at in times if abs(at - time) < WITHIN)
        rows = (near[i:i + MOST] for i in range(len(near) - MOST + 1))
        return any(max(row[-1], time) - min(row[0], time) < WITHIN for row in rows)

    def judge(self, key, time):
        times = self.times.setdefault(key, [])
        day = (key, datetime.datetime.fromtimestamp(time / 1000, BERLIN).date())
        if self.is_burst(times[-100:], time):
            return "drop"
        if self.days.get(day, 0) >= A_DAY:
            return "dead-letter"
        times.append(time)
        self.days[day] = self.days.get(day, 0) + 1
        return "pass"


class World:
    """A topic, what becomes of its messages, and how far they are committed."""

    def __init__(self, path, chance, count):
        self.path, self.chance = path, chance
        self.committed = self.judged = self.suicides = self.repeated = 0
        self.messages = list(self.make(count))
        model = Model()
        self.verdicts = [model.judge(key, time) for _, time, key in self.messages]

    def make(self, count):
        """Over the days around the end of summer time; some are late, as far as is allowed."""
        newest = BEGIN
        for offset in range(count):
            newest += self.chance.choice((0, 1, 100, 2000, 5000, 100_000))
            late = self.chance.choice((0, 0, 0, 1, WITHIN - 1, WITHIN, LATE - 1))
            yield offset, newest - late, self.chance.choice("aaabcd")

    def fault(self):
        """Nothing, or a point at which the process kills itself."""
        if self.chance.random() < 0.5:
            return {}
        return {"OUTBOX_RELAY_FAULT": f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 12)}"}

    def batch(self, rules, offset):
        """Judges some from this offset on, and may commit them; returns the next offset."""
        end = min(offset + self.chance.randint(1, 60), len(self.messages))
        judged, self.judged = self.judged, max(self.judged, end)  # also if it dies within
        found = rules.check(*self.messages[offset:end])
        self.repeated += found.count("again")
        for number, (verdict, wanted) in enumerate(zip(found, self.verdicts[offset:end]), offset):
            if verdict == "again":
                verdict = "pass"
            elif number < judged and wanted == "dead-letter":
                verdict = verdict.replace("drop", "dead-letter")
            assert verdict == wanted, f"{number}, judged to {judged}"
        if self.chance.random() < 0.7:
            rules.checkpoint(end)
            self.committed = max(self.committed, end)
        return end

    def live(self):
        """One life of the process, which begins before what is committed; it ends by a kill."""
        offset = max(0, self.committed - self.chance.choice((0, 0, 50)))
        lines = (line.format(self.chance.choice(LATES)) for line in LINES)
        try:
            with Rules(self.path, *lines, env=self.fault()) as rules:
                assert rules.stats()["offset"] >= self.committed or not self.committed
                for _ in range(self.chance.randint(1, 20)):
                    if offset < len(self.messages):
                        offset = self.batch(rules, offset)
                rules.kill()
        except (EOFError, BrokenPipeError):
            self.suicides += 1


def test_a_kill_refuses_nothing_else(tmp_path, chance, scale):
    world = World(tmp_path / "rules", chance, scale(100_000))
    lives = 0
    while world.committed < len(world.messages):
        world.live()
        lives += 1
    assert set(world.verdicts) == {"pass", "drop", "dead-letter"}
    assert world.suicides > lives / 10 and world.repeated > 0
