"""What is measured of each system. A part returns {figure: value}.

A system's turn: it starts on an empty table; messages at each rate; rest; it is stopped, rows are
written, it starts again and drains them. The crash has a turn of its own.
"""

import json
import os
import subprocess
import sys
import time

from cpu import Sessions, process_cpu
from systems import SYSTEMS
from support.auditor import count_records
from support.kafka import Kafka
from support.kafka import VERSION as KAFKA
from support.postgres import Postgres
from support.process import wait_for

BUSY = 1000          # a second: lower rates need less warm-up, and more time for as many messages
PARTITIONS = 6
WARM_S, LOW_WARM_S = 10, 3  # at a rate, before what counts
COMPILE_S = 20       # more of it at the first rate: the JVM compiles what it runs often
LOW_MESSAGES = 300   # of a rate below BUSY, where the time allows
SETTLE_S = 5         # between the last message and the rest
TRANSACTION = 10000  # rows of one, in a fill


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


class Load:
    """A run of the load program. Its events come one a line."""

    def __init__(self, program, *arguments):
        self.child = subprocess.Popen(
            [program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, start_new_session=True)
        self.expect("ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.child.stdout.close()

    def expect(self, name):
        """Waits for this event; others before it are passed over."""
        for line in self.child.stdout:
            event = json.loads(line)
            if event["event"] == name:
                return event
        raise RuntimeError(f"the load program ended before '{name}'; it said why above")


class Turn:
    """One system on a database and a topic of its own."""

    def __init__(self, bench, system):
        self.options, self.postgres, self.kafka = bench.options, bench.postgres, bench.kafka
        bench.turns += 1
        self.topic = f"peer-{bench.turns}"
        self.database = f"peer_{bench.turns}"
        self.system = system(self.options)
        self.next = 0  # number of a message
        self.sessions = Sessions(self.postgres.process.pid, system.role)

    def __enter__(self):
        self.kafka.create_topic(self.topic, PARTITIONS)
        self.postgres.create_database(self.database)
        self.system.prepare(self.postgres, self.database, self.kafka, self.topic)
        self.sessions.__enter__()
        return self

    def __exit__(self, *_):
        self.system.end()
        self.sessions.__exit__()
        self.postgres.execute("""select pg_terminate_backend(active_pid)
            from pg_replication_slots where active""")
        wait_for(lambda: self.postgres.execute(
            "select count(*) = 0 from pg_replication_slots where active")[0][0], 30,
            "a slot that nobody uses")
        self.postgres.execute("select pg_drop_replication_slot(slot_name) "
                              "from pg_replication_slots")
        self.postgres.drop_database(self.database)
        self.kafka.delete_topic(self.topic)

    def execute(self, statement):
        return self.postgres.execute(statement, database=self.database)

    def numbers(self, count):
        first, self.next = self.next, self.next + count
        return first

    def reader(self, first, count, *arguments):
        return Load(self.options.load, "read", "--brokers", self.kafka.bootstrap, "--topic",
                    self.topic, "--first", first, "--count", count, *arguments)

    def records(self):
        return count_records(self.kafka.bootstrap, [self.topic])

    def begin(self):
        """Started, and one message has come through."""
        first = self.numbers(1)
        with self.reader(first, 1) as reader:
            self.system.start()
            self.system.wait_running(self.postgres)
            self.execute(self.system.fill(first, first)[0])
            reader.expect("done")

    def fill(self, count):
        """Writes rows, and leaves nothing of that for the reader to pay."""
        first = self.numbers(count)
        connection = self.postgres.connect(self.database)
        try:
            with connection.cursor() as cursor:
                for at in range(first, first + count, TRANSACTION):
                    last = min(at + TRANSACTION, first + count) - 1
                    statement, table = self.system.fill(at, last)
                    cursor.execute(statement)
                cursor.execute(f"vacuum (analyze) {table}")
                cursor.execute("checkpoint")
        finally:
            connection.close()
        return first

    def cpu(self):
        return {"process": process_cpu(self.system.process.pid), "backends": self.sessions.cpu(),
                "broker": process_cpu(self.kafka.nodes[1].process.pid)}


def difference(before, after):
    return {name: after[name] - before[name] for name in before}


def per_million(prefix, spent, messages):
    """CPU seconds a million messages, and messages a CPU second of the system with its sessions."""
    figures = {f"{prefix}_cpu_{name}": seconds * 1e6 / messages for name, seconds in spent.items()}
    own = spent["process"] + spent["backends"]
    figures[f"{prefix}_per_cpu"] = messages / own if own else 0.0
    return figures


def rest(turn):
    seconds = turn.options.idle_seconds
    time.sleep(SETTLE_S)
    before, began = turn.cpu(), time.monotonic()
    time.sleep(seconds)  # the rest is what is measured
    spent, lasted = difference(before, turn.cpu()), time.monotonic() - began
    return {"idle_process": spent["process"] / lasted * 100,
            "idle_backends": spent["backends"] / lasted * 100,
            "idle": (spent["process"] + spent["backends"]) / lasted * 100}


def times_of(options, rate):
    """(warm-up, length) of a rate, in seconds."""
    if rate < BUSY:
        return LOW_WARM_S, max(options.seconds, min(LOW_MESSAGES // rate, options.low_seconds))
    return WARM_S + (COMPILE_S if rate == options.rates[0] else 0), options.seconds


def at_rate(turn, rate):
    options = turn.options
    warm, seconds = times_of(options, rate)
    first = turn.numbers(rate * (warm + seconds) + 100)
    with Load(options.load, "write", "--brokers", turn.kafka.bootstrap, "--topic", turn.topic,
              "--dsn", turn.postgres.dsn(turn.database), "--sql", turn.system.sql, "--first",
              first, "--rate", rate, "--warm", warm, "--seconds", seconds) as load:
        load.expect("warm")
        before, began = turn.cpu(), time.monotonic()
        done = load.expect("done")
        spent, lasted = difference(before, turn.cpu()), time.monotonic() - began
    name = f"rate{rate}"
    figures = {f"{name}_{key}": done[key]
               for key in ("held", "p50", "p99", "stamp_p50", "stamp_p99")}
    figures[f"{name}_core"] = (spent["process"] + spent["backends"]) / lasted * 100
    figures[f"{name}_memory"] = turn.system.process.peak_memory() / 2**20
    return {**figures, **per_million(name, spent, done["messages"])}


def wal_held(turn):
    """Bytes that PostgreSQL may not remove, as slots hold them back."""
    return float(turn.execute("""select coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(),
        restart_lsn)), 0) from pg_replication_slots""")[0][0])


def drain(turn):
    count = turn.options.messages
    first = turn.fill(count)
    figures = {"wal_held": wal_held(turn) / 2**20}
    with turn.reader(first, count) as reader:
        # sessions that ended with the system's last stop are in both readings
        sessions = turn.sessions.cpu()
        began = time.monotonic()
        turn.system.start()
        reader.expect("first")
        figures["drain_begin"] = time.monotonic() - began
        before = turn.cpu()
        reader.expect("last")
        after = turn.cpu()
        done = reader.expect("done")
    figures["drain_rate"] = count * 1e6 / done["span_us"]
    figures["drain_twice"] = done["twice"]
    figures["drain_backwards"] = done["backwards"]
    figures["drain_memory"] = turn.system.process.peak_memory() / 2**20
    whole = {"process": after["process"], "backends": after["backends"] - sessions}
    figures["drain_cpu_whole"] = sum(whole.values()) * 1e6 / count
    return {**figures, **per_million("drain", difference(before, after), count)}


def crash(turn):
    count = turn.options.messages
    turn.begin()
    turn.system.stop()
    first = turn.fill(count)
    before = turn.records()
    with turn.reader(first, count, "--at", count * 2 // 5) as reader:
        turn.system.start()
        reader.expect("at")
        turn.system.kill()
        began = time.monotonic()
        killed_at = turn.records() - before
        if killed_at >= count:
            raise RuntimeError("the drain was over before the kill: more --messages")
        turn.system.start()
        reader.expect("last")
        lasted = time.monotonic() - began
        done = reader.expect("done")
    return {"crash_at": killed_at / count * 100, "crash_twice": done["twice"],
            "crash_backwards": done["backwards"], "crash_seconds": lasted}


def without_paths(words):
    """The options that change a figure, and not those that say where things are."""
    words = iter(words)
    for word in words:
        if word in ("--json", "--build", "--relay"):
            next(words, None)
        elif not word.startswith(("--json=", "--build=", "--relay=")):
            yield word


class Bench:
    def __init__(self, options):
        self.options = options
        self.turns = 0
        self.loads = []
        self.postgres = self.kafka = None

    def __enter__(self):
        # PostgreSQL's default, with which the doorbell is on; the tests' servers allow PREPARE TRANSACTION
        self.postgres = Postgres(wal_level="'logical'", max_prepared_transactions=0).start()
        try:
            self.kafka = Kafka().start()
            for system in SYSTEMS:
                self.postgres.execute(
                    f"do $$ begin create role {system.role} superuser login; "
                    "exception when duplicate_object then null; end $$")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.kafka:
            self.kafka.stop()
        self.postgres.stop()

    def run(self):
        """{system: {figure: [a value a run]}}; who begins changes from run to run."""
        results = {system.name: {} for system in SYSTEMS}
        for run in range(self.options.runs):
            for index in range(len(SYSTEMS)):
                system = SYSTEMS[(run + index) % len(SYSTEMS)]
                self._turn(results, system, run)
        for system in SYSTEMS if "kill" in self.options.parts else ():
            with Turn(self, system) as turn:
                self._part(results, turn, "kill", crash)
        return results

    def _turn(self, results, system, run):
        say(f"run {run + 1} of {self.options.runs}: {system.title}")
        with Turn(self, system) as turn:
            turn.begin()
            for rate in self.options.rates if "rates" in self.options.parts else ():
                self._part(results, turn, f"{rate}/s", lambda turn, rate=rate: at_rate(turn, rate))
            if "rest" in self.options.parts:
                self._part(results, turn, "rest", rest)
            turn.system.stop()
            if "drain" in self.options.parts:
                self._part(results, turn, "drain", drain)

    def _part(self, results, turn, name, measure):
        load = os.getloadavg()[0]
        figures = measure(turn)
        self.loads.append({"part": name, "system": turn.system.name, "load": load})
        for figure, value in figures.items():
            results[turn.system.name].setdefault(figure, []).append(value)
        shown = " ".join(f"{figure}={value:.4g}" for figure, value in figures.items())
        say(f"{turn.system.name}, {name} (load {load:.1f} before): {shown}")

    def about(self):
        options = self.options
        version = subprocess.run([options.relay, "version"], capture_output=True, text=True,
                                 check=True).stdout.splitlines()[0]
        with open("/proc/cpuinfo") as file:
            models = [line.partition(":")[2].strip() for line in file
                      if line.startswith("model name")]
        return {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": " ".join(["tests/bench/peers/run", *without_paths(sys.argv[1:])]),
            "machine": f"{os.cpu_count()} cores, {models[0] if models else 'unknown'}, "
                       f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // 2**30} GiB",
            "versions": f"{version}, Debezium 3.2.7.Final on Kafka Connect {KAFKA}, PostgreSQL "
                        f"{self.postgres.execute('show server_version')[0][0].split()[0]}, "
                        f"Apache Kafka {KAFKA}",
            "titles": {system.name: system.title for system in SYSTEMS},
            "rates": sorted(options.rates) if "rates" in options.parts else [],
            "messages": options.messages, "seconds": options.seconds,
            "idle_seconds": options.idle_seconds, "runs": options.runs, "loads": self.loads}
