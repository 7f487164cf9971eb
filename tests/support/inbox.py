"""Consumers with an inbox, each in a process of its own (tests/unit/inbox_driver.c), what is produced
for them, and what came of it."""

import collections
import re
import signal
import subprocess
import threading

from confluent_kafka import Producer

from support.dedup import DedupError
from support.process import temporary_folder, wait_for
from support.relay import beside, environment

Effect = collections.namedtuple("Effect", "pid topic partition offset attempt id key payload")


class Inbox:
    """A consumer that is started; settings as in struct outbox_inbox_settings. A context manager."""

    def __init__(self, bootstrap, group, topics, env=None, **settings):
        kafka = {"bootstrap.servers": bootstrap, "session.timeout.ms": 6000,
                 "heartbeat.interval.ms": 500, **settings.pop("kafka", {})}
        rules = settings.pop("rules", [])
        self.arguments = [
            *[f"kafka.{name}={value}" for name, value in kafka.items()],
            f"group={group}", f"topics={','.join(topics)}",
            *[f"rule={rule}" for rule in rules],
            *[f"{name}={value}" for name, value in settings.items() if value is not None]]
        self.env = env or {}
        self.log = []
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [beside("tests/unit/inbox_driver"), *self.arguments], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(self.env))
        threading.Thread(target=self._read_log, args=[self.process.stderr], daemon=True).start()
        self._answer()
        return self

    def _read_log(self, stream):
        with stream:
            for line in stream:
                self.log.append(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _answer(self):
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            raise EOFError(f"the inbox ended with {self.process.wait()}: {''.join(self.log[-20:])}")
        if answer.startswith("error "):
            _, kind, message = answer.split(" ", 2)
            raise DedupError(kind, message)
        return answer

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def stats(self):
        return {name: int(value) for name, value in
                (pair.split("=") for pair in self.ask("stats").split())}

    def wait_stats(self, timeout=60, **wanted):
        """Until all of these have at least the value."""
        def there():
            stats = self.stats()
            return stats if all(stats[name] >= value for name, value in wanted.items()) else None

        return wait_for(there, timeout, f"{wanted}")

    def events(self, name):
        return [line for line in self.log if re.search(rf"\bevent={name}\b", line)]

    def wait_event(self, name, timeout=60):
        return wait_for(lambda: self.events(name), timeout, f"the log's {name}")

    @property
    def running(self):
        return self.process.poll() is None

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def close(self, timeout=60):
        """Asks it to end, and judges how it did."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.stdin.close()
            self.process.wait(timeout)
        if not self.process.stdout.closed:
            self.process.stdout.close()
        assert self.process.returncode in (0, -signal.SIGKILL), "".join(self.log[-40:])


class Effects:
    """A file to which consumers add their effects, in the order in which they have them."""

    def __init__(self):
        self.path = temporary_folder("effects") + "/effects"
        open(self.path, "w").close()

    def all(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(" ", 7) for line in file if line.endswith("\n")]
        return [Effect(int(line[0]), line[1], *map(int, line[2:5]), *line[5:]) for line in lines]

    def wait_ids(self, ids, timeout=60):
        """Until each of the ids has had an effect; all effects then."""
        missing = set(ids)
        wait_for(lambda: not (missing - {effect.id for effect in self.all()}), timeout,
                 "an effect of each id")
        return self.all()

    def out_of_order(self):
        """A key whose partition changes, because some were added, has an order in each of them."""
        return out_of_order((effect.id, None if effect.key == "-" else (effect.key, effect.partition),
                             effect.payload) for effect in self.all())


def out_of_order(effects):
    """Of (id, key, payload): first effects whose key had one of a later sequence before. A payload says
    seq=N, or in JSON "seq": N."""
    highest, seen, wrong = {}, set(), []
    for id, key, payload in effects:
        if id in seen or key is None or payload is None:
            continue
        seen.add(id)
        sequence = int(re.search(r'\bseq(?:=|": )(\d+)', payload)[1])
        if sequence < highest.get(key, -1):
            wrong.append((id, key, sequence))
        highest[key] = max(sequence, highest.get(key, -1))
    return wrong


def produce(bootstrap, topic, messages, header="outbox-id", timestamp=0):
    """messages: of (id, key, payload), or with a partition and further headers behind them.
    timestamp: of their records, in milliseconds; 0: now."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all",
                         "enable.idempotence": True, "partitioner": "murmur2_random"})
    failures = []
    for id, key, payload, *more in messages:
        where = {"partition": more[0]} if more and more[0] is not None else {}
        headers = [(header, id.encode())] if id is not None else []
        headers += more[1] if len(more) > 1 else []
        while True:
            try:
                producer.produce(topic, key=key, value=payload, headers=headers,
                                 timestamp=timestamp, **where,
                                 on_delivery=lambda error, _: error and failures.append(error))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    assert not failures, failures[:3]


def committed(bootstrap, group, topic, partition=0):
    """(offset, text) of what is committed; (-1, ""): nothing."""
    done = subprocess.run(
        [beside("tests/unit/commit_text_tool"), bootstrap, group, topic, str(partition)],
        capture_output=True, text=True, timeout=60, env=environment())
    if done.returncode:  # the coordinator is away, or comes back
        return -1, ""
    offset, text = done.stdout.rstrip("\n").split(" ", 1)
    return int(offset), text


def commit(bootstrap, group, topic, partition, offset, text):
    """As somebody else would."""
    subprocess.run(
        [beside("tests/unit/commit_text_tool"), bootstrap, group, topic, str(partition),
         str(offset), text], check=True, timeout=60, env=environment())


def wait_committed(bootstrap, group, topic, ends, timeout=60):
    """Until these offsets, {partition: offset}, are committed."""
    wait_for(lambda: all(committed(bootstrap, group, topic, partition)[0] >= end
                         for partition, end in ends.items()), timeout, f"commits of {ends}",
             interval=0.2)


def header(record, name):
    found = [value for header, value in record.headers if header == name]
    return found[-1].decode() if found else None
