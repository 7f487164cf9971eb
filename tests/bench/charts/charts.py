"""The charts of docs/benchmarks.md, one row of CHARTS each. A chart's function returns what docs/figures/draw takes
of x or groups, series and note."""

import glob
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Callable

from support.kafka import VERSION as KAFKA
from support.kafka import Kafka
from support.postgres import Postgres
from support.relay import environment, run_command

COLOURS = {"Debezium, tuned": "third", "Debezium, default": "fourth"}


def say(text):
    print(f"charts: {text}", file=sys.stderr, flush=True)


def machine():
    def first(path, name):
        with open(path) as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith(name)), "unknown")

    memory = int(first("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    return f"{os.cpu_count()} cores ({first('/proc/cpuinfo', 'model name')}) and {memory:.0f} GiB for everything"


class Bench:
    """Servers, and outbox-relay-bench on them. The servers start when the first chart needs them."""

    def __init__(self, options):
        self.options = options
        self.relay = os.path.join(options.build, "relay", "cli", "outbox-relay")
        self.program = os.path.join(options.build, "relay", "bench", "outbox-relay-bench")
        self.postgres = self.kafka = None
        self.numbers = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in (self.kafka, self.postgres):
            if server:
                server.stop()

    def start(self):
        if not self.postgres:
            # PostgreSQL's default, with which the doorbell is on; the tests' servers allow PREPARE TRANSACTION
            self.postgres = Postgres(max_prepared_transactions=0).start()
        if not self.kafka:
            self.kafka = Kafka().start()

    @property
    def settings(self):
        return {"DATABASE_URL": self.postgres.dsn(), "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap}

    def size(self, usual):
        return usual // 10 if self.options.quick else usual

    @property
    def runs(self):
        return self.options.runs or (1 if self.options.quick else 5)

    def figures(self, *words):
        """{name: figure} of a run. A figure beyond its bound is a figure, too."""
        self.start()
        command = " ".join(map(str, ["outbox-relay-bench", *words]))
        say(command)
        status, output, errors = run_command(["--relay", self.relay, "--json", *words], self.settings, timeout=3600,
                                             program=self.program)
        if status not in (0, 1):
            raise RuntimeError(f"{command}: {errors}")
        return {figure["name"]: figure for figure in json.loads(output)["figures"]}

    def peers(self):
        """The figures of all files; a run of an hour may be made in parts."""
        result = None
        for path in self.options.peers:
            with open(path) as file:
                part = json.load(file)
            if result:
                for system, figures in part["medians"].items():
                    result["medians"][system].update(figures)
                result["about"]["rates"] = sorted({*result["about"]["rates"], *part["about"]["rates"]})
                result["about"]["command"] += "; " + part["about"]["command"]
            result = result or part
        return result

    def versions(self):
        if not self.postgres:
            return ""
        server = self.postgres.execute("show server_version")[0][0].split()[0]
        return f"PostgreSQL {server} with fsync {self.postgres.execute('show fsync')[0][0]}, one Apache Kafka {KAFKA}"


# --- drains over payload, shards and topics --------------------------------------------------------


def payload(bench):
    sizes = [300, 1000, 4096, 16384, 65536]
    rates = {"outbox-relay": [], "limit": []}
    for size in sizes:
        rows = max(bench.size(300_000_000) // size, 1000)
        figure = next(iter(bench.figures("--rows", rows, "--payload", size, "--runs", bench.runs, "drain").values()))
        rates["outbox-relay"].append(figure["value"] * size / 1e6)
        rates["limit"].append(figure["beside"] * size / 1e6)
    return {"x": {"name": "bytes of a payload", "values": sizes}, "series": rates,
            "note": "The limit is a bare COPY of the same rows, handed to librdkafka as records with the same bytes."}


def shards(bench):
    kind = "shards" if "shards: " in run_command(["--help"], program=bench.program)[1] else "spread"
    figures = bench.figures("--rows", bench.size(1_000_000), "--runs", bench.runs, kind)
    counts = [4, 16]
    found = [figures[f"drain to 6 partitions, {count} shards"] for count in counts]
    return {"x": {"name": "shards", "values": [1, *counts]},
            "series": {"outbox-relay": [found[0]["beside"], *(figure["value"] for figure in found)]},
            "note": "All shards in one process, 6 partitions of the topic."}


ROWS = """insert into outbox.message (topic, key, payload)
    select '{topic}-' || n % {topics}, 'customer-' || n % 10000, format('{{"n":%s,"note":"%s"}}', n,
        left(repeat(md5(n::text), 9), 270)) from generate_series(1, {rows}) as r (n)"""


def appended_ms(kafka, topic):
    """The first and the last time at which the broker appended a batch: from the heads of the batches on its disk."""
    times = []
    for path in (path for node in kafka.nodes.values()
                 for path in glob.glob(os.path.join(node.folder, f"{topic}-*", "*.log"))):
        with open(path, "rb") as file:
            segment = file.read()
        at = 0
        while at + 43 <= len(segment):
            times.append(int.from_bytes(segment[at + 35:at + 43], "big"))
            at += 12 + int.from_bytes(segment[at + 8:at + 12], "big")
    return min(times), max(times)


def drain_to_topics(bench, topics, rows):
    """(rows a second, CPU seconds a million rows) of one drain."""
    bench.numbers += 1
    name = f"charts-{bench.numbers}"
    settings = bench.settings | {"DATABASE_URL": bench.postgres.dsn(name), "OUTBOX_RELAY_LOG_LEVEL": "error"}
    bench.postgres.create_database(name)
    names = [f"{name}-{number}" for number in range(topics)]
    bench.kafka.create_topics(names, 1 if topics > 100 else 6)
    for topic in names[:1] if topics == 1 else names:
        bench.kafka.alter_topic(topic, **{"message.timestamp.type": "LogAppendTime"})
    status, _, errors = run_command(["migrate", "up"], settings, program=bench.relay)
    if status != 0:
        raise RuntimeError(errors)
    bench.postgres.execute(ROWS.format(topic=name, topics=topics, rows=rows), database=name)
    bench.postgres.execute("vacuum (analyze) outbox.message", database=name)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([bench.relay, "run", "--drain"], env=environment(settings), check=True, timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    first, last = appended_ms(bench.kafka, name)
    bench.kafka.delete_topics(names)
    bench.postgres.drop_database(name)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return rows * 1000 / (last - first + 1), spent * 1e6 / rows


def topics(bench):
    bench.start()
    counts, rows, rates, cpus = [1, 10, 100, 1000], bench.size(1_000_000), [], []
    for count in counts:
        runs = [drain_to_topics(bench, count, rows) for _ in range(bench.runs)]
        say(f"{count} topics: {runs}")
        rates.append(statistics.median(rate for rate, _ in runs))
        cpus.append(statistics.median(cpu for _, cpu in runs))
    return {"x": {"name": "topics", "values": counts}, "series": {"outbox-relay": rates},
            "note": f"{rows:,} rows, every topic with 6 partitions, 1,000 topics with one. CPU seconds a million rows: "
                    + ", ".join(f"{cpu:.3g} ({count})" for cpu, count in zip(cpus, counts))
                    + ". Before the first record of a topic librdkafka asks for its partitions."}


# --- pace -----------------------------------------------------------------------------------------

PACES = ("latency", "balanced", "economy")
PACE_RATES = (20, 100, 500, 1000, 2000)


def of_pace(bench):
    """Its figures, once for both charts."""
    if not hasattr(bench, "paces"):
        bench.paces = {rate: bench.figures("--rate", rate, "--seconds", bench.size(200) // 10, "--runs",
                                           min(bench.runs, 3), "pace") for rate in PACE_RATES}
    return bench.paces


def pace_latency(bench):
    found = of_pace(bench)
    series = {pace: [found[rate][f"{pace} at {rate}/s, p50"]["value"] for rate in PACE_RATES] for pace in PACES}
    series["direct"] = [found[rate][f"direct at {rate}/s, p50"]["value"] for rate in PACE_RATES]
    return {"x": {"name": "messages a second", "values": PACE_RATES}, "series": series,
            "note": "Direct is an application that produces its record itself after its COMMIT."}


def pace_cpu(bench):
    found = of_pace(bench)
    return {"x": {"name": "messages a second", "values": PACE_RATES},
            "series": {pace: [found[rate][f"{pace} at {rate}/s, CPU a million, together"]["value"]
                              for rate in PACE_RATES] for pace in PACES},
            "note": "The process, its sessions in PostgreSQL and the broker together."}


# --- beside Debezium ------------------------------------------------------------------------------


def of_peers(bench, note):
    """The peers' figures, and what a chart says of where they are from."""
    result = bench.peers()
    return result, {"note": note, "date": result["about"]["date"], "made": result["about"]["versions"],
                    "command": result["about"]["command"] + "; "}


def by_system(result, keys):
    """{title: the figures of these keys}, outbox-relay first."""
    for key in keys:
        if key not in result["medians"]["relay"]:
            sys.exit(f"charts: the files of --peers have no figure {key}: make one with all parts and rates of tests/bench/peers/run")
    titles = result["about"]["titles"]
    return {titles[system]: [result["medians"][system][key] for key in keys]
            for system in sorted(titles, key=lambda system: system != "relay")}


def over_rates(bench, part, note):
    result, origin = of_peers(bench, note)
    rates = result["about"]["rates"]
    return {"x": {"name": "messages a second", "values": rates},
            "series": by_system(result, [f"rate{rate}_{part}" for rate in rates]), **origin}


def peers_p50(bench):
    return over_rates(bench, "p50", "One message a transaction, 300 B of JSON.")


def peers_p99(bench):
    return over_rates(bench, "p99", "One message a transaction, 300 B of JSON.")


def peers_core(bench):
    return over_rates(bench, "core", "The process and its sessions in PostgreSQL, without the broker.")


def peers_bars(bench, groups, note):
    """groups: {title: key of a figure}."""
    result, origin = of_peers(bench, note)
    return {"groups": list(groups), "series": by_system(result, groups.values()), **origin}


def peers_latency(bench):
    return peers_bars(bench, {f"{rate:,}/s, {part}": f"rate{rate}_{part}" for rate in (1000, 5000) for part in ("p50", "p99")},
                      "From the return of COMMIT. One message a transaction, 300 B of JSON.")


def peers_cpu(bench):
    parts = {"the process": "cpu_process", "its sessions in PostgreSQL": "cpu_backends", "the broker": "cpu_broker"}
    return peers_bars(bench, {f"{title}: {part}": f"{key}_{of_part}" for title, key in (("drain", "drain"), ("1,000/s", "rate1000"))
                              for part, of_part in parts.items()},
                      "A drain of rows of 300 B, without the start of the JVM. At 1,000/s one message a transaction.")


def drain(bench):
    """Beside the limit, and beside Debezium."""
    made = peers_bars(bench, {f"{bench.peers()['about']['messages']:,} rows of 300 B, beside Debezium": "drain_rate"},
                      "The limit is a bare COPY of the same rows, handed to librdkafka as records with the same bytes. "
                      "Each group is a run of its own: compare within a group only.")
    groups, limits = [], []
    for payload_bytes, rows in ((300, 1_000_000), (4096, 100_000)):
        rows = bench.size(rows)
        figure = next(iter(bench.figures("--rows", rows, "--payload", payload_bytes, "--runs", bench.runs, "drain").values()))
        groups.append((f"{rows:,} rows of {payload_bytes:,} B", figure["value"]))
        limits.append(figure["beside"])
    ours, *others = made["series"].items()
    return {**made, "groups": [*(group for group, _ in groups), *made["groups"]],
            "series": {ours[0]: [*(rate for _, rate in groups), *ours[1]], "limit": [*limits, None],
                       **{title: [None, None, *values] for title, values in others}}}


# --- the rows -------------------------------------------------------------------------------------


@dataclass
class Chart:
    name: str
    title: str
    unit: str
    make: Callable
    log: bool = True
    peers: bool = False


CHARTS = [
    Chart("rate_p50", "Latency from COMMIT to the consumer over the rate, p50", "ms, less is better", peers_p50,
          peers=True),
    Chart("rate_p99", "Latency from COMMIT to the consumer over the rate, p99", "ms, less is better", peers_p99,
          peers=True),
    Chart("rate_cpu", "CPU over the rate", "% of a core, less is better", peers_core, peers=True),
    Chart("drain", "Drain: rows per second from a full table to Kafka", "rows/s, more is better", drain, log=False, peers=True),
    Chart("latency", "Latency: from the return of COMMIT to the consumer", "ms, less is better", peers_latency, peers=True),
    Chart("cpu", "CPU: seconds for a million messages", "CPU s a million, less is better", peers_cpu, log=False, peers=True),
    Chart("pace_latency", "Latency of each pace over the rate, p50", "ms, less is better", pace_latency),
    Chart("pace_cpu", "CPU of each pace over the rate: seconds for a million messages",
          "CPU s a million, less is better", pace_cpu),
    Chart("payload", "Drain over the size of a payload", "MB of payload a second, more is better", payload),
    Chart("shards", "Drain over the number of shards", "rows/s, more is better", shards, log=False),
    Chart("topics", "Drain over the number of topics", "rows/s, more is better", topics, log=False),
]


def as_text(data):
    """JSON with a line for each key and for each series."""
    lines = [f'  "{key}": {json.dumps(value)}' for key, value in data.items() if key != "series"]
    series = ",\n".join(f"    {json.dumps(row)}" for row in data["series"])
    return "{\n" + ",\n".join([*lines, f'  "series": [\n{series}\n  ]']) + "\n}\n"


def rounded(value):
    return None if value is None else float(f"{value:.3g}")


def write(bench, chart):
    made = chart.make(bench)
    series = [{"name": name, "values": list(map(rounded, values)),
               **({"colour": COLOURS[name]} if name in COLOURS else {})} for name, values in made["series"].items()]
    words = ["--peers FILE"] if chart.peers else [
        *(["--quick"] if bench.options.quick else []), *([f"--runs {bench.options.runs}"] if bench.options.runs else [])]
    kind, axis = ("bars", "groups") if "groups" in made else ("lines", "x")
    data = {"kind": kind, "title": chart.title, "unit": chart.unit, axis: made[axis], "series": series,
            "note": made["note"], "date": made.get("date", time.strftime("%Y-%m-%d", time.gmtime())),
            "machine": "; ".join(filter(None, [machine(), made.get("made", bench.versions())])),
            "command": "command: " + made.get("command", "") + " ".join(["tests/bench/charts/run", *words, chart.name])}
    if chart.log:
        data["scale"] = "log"
    with open(os.path.join(bench.options.into, f"{chart.name}.json"), "w") as file:
        file.write(as_text(data))
    say(f"{chart.name}.json is written")
