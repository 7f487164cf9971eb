"""An application whose transactions interleave at random, and a judge of what readers made of it.

    application = Application([Session(database) for _ in range(SESSIONS)], random.Random(7))
    application.step()  # of some session: a change, a savepoint, a commit …
    judge = Judge(Ticks(dsn)); judge.poll(); judge.rows()
"""

from collections import defaultdict

KEYS = "abcde"
SESSIONS = 5


class Application:
    """Transactions of several sessions, a random step at a time; nobody ever waits for a lock."""

    def __init__(self, sessions, chance):
        self.chance = chance
        self.sessions = sessions
        self.holder = {}                     # key -> the session that has locked it
        self.seq = defaultdict(int)          # key -> the last number committed
        self.committed = []                  # (key, number), in the order of commits

    def step(self):
        session = self.chance.choice(self.sessions)
        if session.idle:
            return self.chance.choices(
                [lambda: None, session.take_xid, lambda: self.change(session)], [2, 2, 3])[0]()
        what = self.chance.choices(["change", "savepoint", "undo", "commit", "rollback", "xid"],
                                   [10, 3, 2, 6, 1, 1])[0]
        if what == "change":
            self.change(session)
        elif what == "commit":
            self.end(session, "COMMIT")
        elif what == "rollback":
            self.end(session, "ROLLBACK")
        elif what == "xid":
            session.take_xid()
        elif what == "savepoint":
            session.savepoint()
        elif session.savepoints:
            session.undo()

    def change(self, session):
        free = [key for key in KEYS if self.holder.get(key, session) is session]
        if free:
            key = self.chance.choice(free)
            self.holder[key] = session
            taken = sum(1 for other, _ in session.rows if other == key)
            session.write(key, self.seq[key] + taken + 1)

    def end(self, session, how):
        session.run(how)
        for key, number in session.rows if how == "COMMIT" else ():
            self.seq[key] = max(self.seq[key], number)
            self.committed.append((key, number))
        for key in [key for key, holder in self.holder.items() if holder is session]:
            del self.holder[key]
        session.forget()

    def end_all(self):
        for session in self.sessions:
            if not session.idle:
                self.end(session, "COMMIT")


class Session:
    def __init__(self, database):
        self.connection = database.connect()
        self.cursor = self.connection.cursor()
        self.forget()

    def forget(self):
        self.idle, self.rows, self.savepoints = True, [], []

    def run(self, statement, values=()):
        if self.idle:
            self.cursor.execute("BEGIN")
            self.idle = False
        self.cursor.execute(statement, values)

    def take_xid(self):
        self.run("SELECT pg_current_xact_id()")

    def write(self, key, number):
        self.run("INSERT INTO outbox.message (topic, key, payload) VALUES ('t', %s, %s)",
                 (key, str(number)))
        self.rows.append((key, number))

    def savepoint(self):
        self.run(f"SAVEPOINT s{len(self.savepoints)}")
        self.savepoints.append(len(self.rows))

    def undo(self):
        del self.rows[self.savepoints[-1]:]
        self.run(f"ROLLBACK TO SAVEPOINT s{len(self.savepoints) - 1}")


class Judge:
    """What several readers of the same table gave, against what was committed."""

    def __init__(self, ticks):
        self.ticks = ticks
        self.windows = []

    def poll(self):
        """One look: the next window, if there is any."""
        self._take(self.ticks.poll())

    def poll_pages(self, rows, meanwhile=lambda: None):
        """The same for a large window, whose pages are read while others go on."""
        self.ticks.tick(max_rows=0)
        meanwhile()
        if self.ticks.verdict == "pages":
            self._take(list(self.ticks.pages(rows)))

    def _take(self, rows):
        if rows:
            assert [row.id for row in rows] == sorted({row.id for row in rows})
            self.windows.append(rows)

    def rows(self):
        return [(row.key.decode(), int(row.payload)) for window in self.windows for row in window]


def in_order(rows):
    last = defaultdict(int)
    for key, number in rows:
        if number <= last[key]:
            return False
        last[key] = number
    return True
