"""Instructions of a program for one more record, counted by valgrind (Cachegrind without caches).

A count does not depend on the speed of the machine, or on other work on it: two runs differ by one or two
percent. What a program does once, as its start, is in the count of the few records and in that of the many,
so the difference is of the records alone.
"""

import itertools
import re
import subprocess

from support.relay import bench_binary, binary, environment, run_command

FEW, MANY = 2000, 20000
TIME_LIMIT = 300
REFERENCES = re.compile(r"I\s+refs:\s+([\d,]+)")
ROWS = """insert into outbox.message (topic, key, payload, headers)
    select '{topic}', 'customer-' || n % 10000, format('{{"n":%s,"note":"%s"}}', n,
        left(repeat(md5(n::text), 9), 270)), {headers}
    from generate_series(1, {count}) as r (n)"""
TWO_HEADERS = "'{\"trace\": \"4bf92f3577b34da6a3ce929d0e0e4736\", \"tenant\": \"shop-7\"}'"

_numbers = itertools.count(1)


def count(command, settings, folder):
    done = subprocess.run(
        ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/cachegrind",
         *map(str, command)], capture_output=True, text=True, timeout=TIME_LIMIT, stdin=subprocess.DEVNULL,
        env=environment({"OUTBOX_RELAY_LOG_LEVEL": "error", **settings}))
    found = REFERENCES.search(done.stderr)
    assert done.returncode == 0 and found, done.stderr
    return int(found[1].replace(",", ""))


class Place:
    """A database with rows and a topic that they go to."""

    def __init__(self, postgres, template, kafka, rows, headers="null"):
        self.name = f"instructions_{next(_numbers)}"
        self.rows = rows
        self.settings = {"DATABASE_URL": postgres.dsn(self.name),
                         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
        postgres.create_database(self.name, template=template)
        kafka.create_topic(self.name)
        kafka.create_topic(f"{self.name}_limit")
        postgres.execute(ROWS.format(topic=self.name, count=rows, headers=headers), database=self.name)
        postgres.execute("vacuum (analyze) outbox.message", database=self.name)


class Counter:
    """counter.record(way): instructions of a way for a record; each way is counted once."""

    def __init__(self, make_place, folder, settings=None):
        self.make_place, self.folder, self.settings = make_place, folder, settings or {}
        self.places, self.counted = {}, {}

    def record(self, way):
        if way not in self.counted:
            few, many = (self._count(way, rows) for rows in (FEW, MANY))
            self.counted[way] = (many - few) / (MANY - FEW)
        return self.counted[way]

    def _place(self, kind, rows):
        if (kind, rows) not in self.places:
            self.places[kind, rows] = self.make_place(rows, TWO_HEADERS if kind == "headers" else "null")
        return self.places[kind, rows]

    def _count(self, way, rows):
        kind, _, work = way.partition(": ")
        place = self._place(kind, rows)
        command, settings = WORKS[work.partition(" ")[0]](self, place, work)
        return count(command, {**settings, **self.settings}, self.folder)

    def drain(self, place, work):
        delivery = {} if work == "drain" else {"OUTBOX_RELAY_PUBLISHER_DELIVERY": work.partition(" ")[2]}
        return [binary(), "run", "--drain"], place.settings | delivery

    def limit(self, place, _):
        return [bench_binary(), "limit", "--topic", f"{place.name}_limit"], place.settings

    def consume(self, place, work):
        # its topic was filled by the relay, whose headers the inbox reads
        self.record("rows: drain")
        return ([bench_binary(), "consume", work.partition(" ")[2], "--topic", place.name, "--messages",
                 place.rows], place.settings)


WORKS = {"drain": Counter.drain, "limit": Counter.limit, "consume": Counter.consume}
