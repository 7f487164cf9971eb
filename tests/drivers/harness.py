"""Builds the program of a driver, lets it write messages, and compares what a consumer gets.

A program is a folder beside this file, or a command in one. It reads a JSON object from its standard input:

    {"host": …, "port": …, "user": …, "database": …, "pooled": true behind PgBouncer, "topic": …,
     "text": {name: text}, "json": {name: text}, "jsonb": {name: text}, "bytes": {name: base64}}

and writes each value in each of its ways, with the key "DRIVER/WAY/NAME". It prints a line for each way:

    text WAY      the values of text, which a consumer gets byte for byte
    json WAY      the values of json, decoded and encoded again, which may set blanks and the order of keys anew
    jsonb WAY     the same for jsonb
    bytes WAY     the values of bytes, base64 decoded
    returned WAY  the text "string"; the INSERT returned id, event_id and created_at, and outbox.message_state_of
                  knows the event id
    refused WAY CONSTRAINT    the database refused the write under this constraint; nothing was written

A program that finds something wrong ends with another exit status than 0 and says what.
"""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from support.auditor import topic_ranges
from support.process import wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "outbox-relay", "drivers")
INSTALL = os.path.join(os.path.dirname(HERE), "support", "install.sh")
BUILD_LIMIT, RUN_LIMIT = 900, 180  # seconds

# What the application has is what a consumer gets. All are JSON, so that ways through json may write them too.
TEXTS = {
    "backslashes": r'{"p":"C:\\dir\\x41","q":"\\\\"}',
    "newlines": '{\n\t"a": 1,\r\n\t"b": 2\n}',
    "escapes": r'{"a":"line\nline\ttab\u00e9\u2028"}',
    "zero": r'{"a":"zero \u0000 here"}',
    "quotes": r'''{"a":"it's \"quoted\" ''twice'' $1 $$ :name %s %(x)s ? {0} ${x} #{x}"}''',
    "beyond": '{"a":"\U0001f600 \U00020bb7 é ß \u200b\ufeff"}',
    "number": '{"a":1.50,"b":1e2,"c":12345678901234567890.10}',
    "number alone": "1.50",
    "string": '"text"',
    "blanks": '  {"b":1 ,"a" : 2}  ',
    "null": "null",
}
BYTES = {
    "zeros": b"\x00\x01\x02\x00",
    "high": bytes(range(256)),
    "json": b'{"a":1}',
    "hex": b"\\x7b22",
    "empty": b"",
}
# An encoder of JSON may write 1.50 as 1.5, and PostgreSQL has no place for U+0000 in jsonb.
JSON = {name: text for name, text in TEXTS.items() if not name.startswith("number")}
VALUES = {"text": TEXTS, "json": JSON, "jsonb": {name: text for name, text in JSON.items() if name != "zero"},
          "bytes": BYTES, "returned": {"string": TEXTS["string"]}, "refused": {}}


@dataclass(frozen=True)
class Place:
    postgres: object
    pooler: object
    kafka: object
    user: str
    database: str
    topic: str


@dataclass(frozen=True)
class Driver:
    """How a driver's program is made and run. {cache} is a folder that outlives the run."""
    name: str
    run: tuple
    build: tuple = ()      # commands, in the folder of the program
    install: tuple = ()    # groups of install.sh
    folder: str = ""       # that of another driver with the same program
    refused: dict = field(default_factory=dict)  # {way: constraint} that the program must print


def cache_folder(driver):
    return os.path.join(CACHE, driver.folder or driver.name)


def go(name, folder, **options):
    """A program of the module in the folder."""
    return Driver(name, ("{cache}/" + name,), build=(("go", "build", "-o", "{cache}/" + name, "./" + name),),
                  install=("go",), folder=folder, **options)


def rust(name, **options):
    """A crate with the name driver. It is built elsewhere: Cargo writes a lock file beside Cargo.toml."""
    return Driver(name, ("{cache}/target/debug/driver",),
                  build=(("rm", "-rf", "{cache}/crate"), ("cp", "-r", ".", "{cache}/crate"),
                         ("cargo", "build", "--quiet", "--manifest-path", "{cache}/crate/Cargo.toml",
                          "--target-dir", "{cache}/target")), install=("rust",), **options)


def java(name, **options):
    """A program Main.java with the dependencies of its pom.xml."""
    return Driver(name, ("java", "-XX:TieredStopAtLevel=1", "-cp", "{cache}/libs/*:{cache}/classes", "Main"),
                  build=(("rm", "-rf", "{cache}/libs", "{cache}/classes"),
                         ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory={cache}/libs"),
                         ("javac", "-d", "{cache}/classes", "-cp", "{cache}/libs/*", "Main.java")),
                  install=("kafka",), **options)


def npm_install(folder, *packages):
    """The command that installs packages of npm into the folder."""
    return ("npm", "install", "--prefix", folder, "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts",
            "--loglevel=error", *packages)


def node(name, *packages, run="main.js", **options):
    """A program main.js with these packages of npm. run: its arguments."""
    return Driver(name, ("env", "NODE_PATH={cache}/node_modules", "node", *run.split()),
                  build=(npm_install("{cache}", *packages),), install=("npm",), **options)


def build(driver):
    """Its program, made from the registries of its language, unless the cache has it from the same files."""
    with locked(cache_folder(driver)):
        if driver.install:
            _command([INSTALL, *driver.install], driver, BUILD_LIMIT)
        build_once(os.path.join(cache_folder(driver), f"{driver.name}-made-from"), _digest(driver),
                   lambda: [_command(command, driver, BUILD_LIMIT) for command in driver.build])


@contextlib.contextmanager
def locked(folder):
    """Makes the folder, and keeps it from the other processes of the run."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_once(made, digest, make):
    """Calls make() unless the file made says that it was done for this digest."""
    if os.path.exists(made):
        with open(made, encoding="ascii") as file:
            if file.read() == digest:
                return
        os.unlink(made)
    make()
    with open(made, "w", encoding="ascii") as file:
        file.write(digest)


def _digest(driver):
    """Of all that its build depends on."""
    digest = hashlib.sha256(repr(driver.build).encode())
    for folder, _, names in sorted(os.walk(_program_folder(driver))):
        for name in sorted(names):
            digest.update(f"\0{name}\0".encode())
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()


def run(driver, given):
    """What the program printed for the object that it was given."""
    return _command(driver.run, driver, RUN_LIMIT, json.dumps(given))


def write(driver, place, pooled):
    """What the program printed, as a list of (word, way, …)."""
    printed = run(driver, {
        "host": "127.0.0.1", "port": (place.pooler if pooled else place.postgres).port,
        "user": place.user, "database": place.database, "pooled": pooled, "topic": place.topic,
        "text": TEXTS, "json": JSON, "jsonb": VALUES["jsonb"],
        "bytes": {name: base64.b64encode(value).decode() for name, value in BYTES.items()}})
    ways = [tuple(line.split()) for line in printed.splitlines() if line.strip()]
    assert any(VALUES.get(word) for word, *_ in ways), f"the program wrote in no way: {printed}"
    return ways


def check(driver, place, ways, since):
    """Compares the records from the offsets since on, {partition: offset}, with what the program wrote."""
    expected = {f"{driver.name}/{way}/{name}": (word, value) for word, way, *_ in ways
                for name, value in VALUES.get(word, {}).items()}
    read = read_records(place, since, f"{driver.name}/", len(expected))
    wrong = [f"{key}: wrote {expected.get(key)}, read {read.get(key)}"
             for key in sorted(expected.keys() | read.keys())
             if key not in expected or len(read.get(key, [])) != 1 or not same(*expected[key], read[key][0])]
    assert not wrong, "\n".join(wrong)


def same(word, wrote, read):
    if word in ("json", "jsonb"):
        return read is not None and json.loads(read) == json.loads(wrote)
    return read == (wrote if isinstance(wrote, bytes) else wrote.encode())


def read_records(place, since, prefix, count):
    """{key: [value, …]} of the records whose keys begin with prefix, as soon as there are count of them."""
    found = {}
    for message in consume(place, place.topic, since, count, lambda message: message.key().startswith(prefix.encode())):
        found.setdefault(message.key().decode(), []).append(message.value())
    return found


def ends(place, topic):
    """{partition: offset} behind the last record of each."""
    return {partition: end for (_, partition), (_, end) in topic_ranges(place.kafka.bootstrap, [topic]).items()}


def consume(place, topic, since, count, is_wanted=lambda message: True):
    """The wanted messages from the offsets since on, {partition: offset}, as soon as there are count of them."""
    found = []
    consumer = Consumer({"bootstrap.servers": place.kafka.bootstrap, "group.id": "drivers", "log_level": 0,
                         "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in since.items()])

    def all_here():
        for message in consumer.consume(1000, 0.2):
            assert not message.error(), message.error()
            if is_wanted(message):
                found.append(message)
        return len(found) >= count

    try:
        wait_for(all_here, 60, lambda: f"{count} records of {topic}, of which {len(found)} came")
    finally:
        consumer.close()
    return found


def _program_folder(driver):
    return os.path.join(HERE, driver.folder or driver.name)


def _command(command, driver, limit, given=None):
    command = [part.format(cache=cache_folder(driver)) for part in command]
    return run_in(_program_folder(driver), command, limit, given, {"CACHE": cache_folder(driver)})


def run_in(folder, command, limit, given=None, environment=()):
    """What the command prints; given: its standard input. It has the environment beside its own."""
    done = subprocess.run(command, cwd=folder, input=given or "", timeout=limit, capture_output=True, text=True,
                          env={**os.environ, **dict(environment)})
    assert done.returncode == 0, (f"{' '.join(command)}: exit status {done.returncode}\n"
                                  f"{done.stdout[-3000:]}{done.stderr[-6000:]}")
    return done.stdout
