"""Takes the code out of a page of docs/guide, builds it and runs it.

A block of code that is to be run stands under a comment with the name of its file; blocks of one file are put together:

    <!-- file: outbox.py -->
    ```python
    …

The folder guides/write-python beside this file holds what the page write/python leaves out: a main program that calls
the page's functions, and files of the build. All are copied into a folder of the cache, {folder}; a file that did not
change is left alone, so that a second build has nothing to do. schema.sql of a page is run by the owner of the database.

The program of a page gets DATABASE_URL, JDBC_URL, PGHOST, PGPORT, PGUSER, PGDATABASE and KAFKA_BOOTSTRAP_SERVERS. There are

    orders (id bigint primary key, state text)       the orders 1 to 40 with the state "new"
    payments (order_id bigint, state text)

A page of write/ has functions that set the state of an order to "paid" and write a message with the order's id as its
key into the topic "orders", or into "orders-bytes" if the payload is bytes. Its program calls each for another order and prints a line for each:

    json ORDER EVENT-ID     the payload is {"id": ORDER, "state": "paid"}
    bytes ORDER EVENT-ID    the payload is the bytes 00 01 ff

At least one of the messages has the header "source" with the value "shop"; the others have it or no header.

A page of read/ consumes the topic "orders" in the group "billing", drops copies and inserts a row into payments for each
order. It runs until it is killed; the command that runs it must be the program itself, without a process in between. In its code the tests put another topic and group, wherever the two words are quoted.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass

import psycopg2
from confluent_kafka import Consumer, Producer, TopicPartition

from drivers.harness import BUILD_LIMIT, CACHE, INSTALL, RUN_LIMIT, build_once, consume, ends, locked, run_in
from support.process import Process, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
PAGES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "guide")
BLOCK = re.compile(r"^<!-- file: (\S+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ORDERS, COPIES = 20, 5  # of a test of reading
WRITTEN = "orders", "orders-bytes"  # the topics of JSON and of bytes
PAYLOAD_BYTES = b"\x00\x01\xff"


@dataclass(frozen=True)
class Guide:
    """How the code of a page is made and run. {cache} outlives the run and is one for all pages of a language."""
    page: str              # write/python
    run: tuple
    build: tuple = ()      # commands, in {folder}
    install: tuple = ()    # groups of install.sh
    environment: tuple = ()  # ("NAME=value", …)
    more: tuple = ()       # pages whose code belongs to the same program
    pages: str = PAGES     # the folder of the page

    @property
    def folder(self):
        return os.path.join(CACHE, "guides", self.page.replace("/", "-"))

    @property
    def cache(self):
        return os.path.join(CACHE, "guides", os.path.basename(self.page))

    def command(self, command):
        return [part.format(cache=self.cache, folder=self.folder) for part in command]

    def variables(self):
        return dict(part.split("=", 1) for part in self.command(self.environment))


def pages():
    """read/python, write/java, …: the pages of languages."""
    return sorted(f"{folder}/{name.removesuffix('.md')}" for folder in ("read", "write")
                  for name in os.listdir(os.path.join(PAGES, folder)))


def text_of(page, folder=PAGES):
    with open(os.path.join(folder, f"{page}.md"), encoding="utf-8") as file:
        return file.read()


def blocks_of(text):
    """{file name: code}, of the blocks that are to be run."""
    files = {}
    for name, code in BLOCK.findall(text):
        files[name] = files[name] + "\n" + code if name in files else code
    return files


def make_program(guide, words=()):
    """Writes the page's code and what belongs to it into the folder, and builds it. words: {quoted word: another}."""
    given = os.path.join(HERE, "guides", guide.page.replace("/", "-"))
    files = {}
    for folder, _, names in os.walk(given):
        for name in names:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                files[os.path.relpath(os.path.join(folder, name), given)] = file.read()
    code = blocks_of("".join(text_of(page, guide.pages) for page in (guide.page, *guide.more)))
    assert code, f"{guide.pages}/{guide.page}.md has no block of code with the name of a file"
    assert not code.keys() & files.keys(), f"both in the page and beside it: {code.keys() & files.keys()}"
    for word, other in dict(words).items():
        code = {name: re.sub(rf"""(["'`]){word}\1""", rf"\g<1>{other}\1", block) for name, block in code.items()}
    for name, content in (files | code).items():
        _write_if_changed(os.path.join(guide.folder, name), content)
    made = os.path.join(guide.cache, f"{guide.page.replace('/', '-')}-made-from")
    with locked(guide.cache):
        if guide.install:
            run_in(guide.folder, [INSTALL, *guide.install], BUILD_LIMIT)
        build_once(made, digest_of(guide, files | code),
                   lambda: [run_in(guide.folder, guide.command(command), BUILD_LIMIT, environment=guide.variables())
                            for command in guide.build])
    return code.get("schema.sql")


def digest_of(guide, files):
    """Of all that its build depends on."""
    return hashlib.sha256(repr((guide.build, guide.environment, sorted(files.items()))).encode()).hexdigest()


def make_tables(place, schema):
    place.postgres.execute(f"""
        DROP SCHEMA public CASCADE;
        CREATE SCHEMA public;
        CREATE TABLE orders (id bigint PRIMARY KEY, state text NOT NULL);
        INSERT INTO orders SELECT number, 'new' FROM generate_series(1, 40) number;
        CREATE TABLE payments (order_id bigint NOT NULL, state text NOT NULL);
        {schema or ''};
        GRANT USAGE ON SCHEMA public TO {place.user};
        GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {place.user};
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {place.user}""", database=place.database)


def environment(guide, place):
    port = place.postgres.port
    return guide.variables() | {
        "DATABASE_URL": f"postgresql://{place.user}@127.0.0.1:{port}/{place.database}",
        "JDBC_URL": f"jdbc:postgresql://127.0.0.1:{port}/{place.database}?user={place.user}",
        "PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": place.user, "PGDATABASE": place.database,
        "KAFKA_BOOTSTRAP_SERVERS": place.kafka.bootstrap}


def check_guide(guide, place):
    with locked(guide.folder):  # of which each kind of program of a page writes the same files
        if guide.page.startswith("write/"):
            check_writing(guide, place)
        else:
            check_reading(guide, place)


def check_writing(guide, place):
    schema = make_program(guide)
    make_tables(place, schema)
    since = {topic: ends(place, topic) for topic in WRITTEN}
    printed = run_in(guide.folder, guide.command(guide.run), RUN_LIMIT, environment=environment(guide, place))
    wrote = {event: (word, order) for word, order, event in map(str.split, printed.splitlines())}
    assert wrote, "the program wrote nothing"
    in_bytes = sum(word == "bytes" for word, _ in wrote.values())
    read = {record.id: record for topic, count in zip(WRITTEN, (len(wrote) - in_bytes, in_bytes)) if count
            for record in records(place, topic, since[topic], count)}

    wrong = [f"{order}: wrote {word}, read {read.get(event)}" for event, (word, order) in wrote.items()
             if not is_right(word, order, read.get(event))]
    assert not wrong, "\n".join(wrong)
    assert len(read) == len(wrote)
    assert any(record.headers for record in read.values()), "the page shows no header"
    paid = place.postgres.execute("SELECT id::text FROM orders WHERE state = 'paid'", database=place.database)
    assert sorted(order for order, in paid) == sorted(order for _, order in wrote.values())


def is_right(word, order, record):
    return (record is not None and record.key == order.encode()
            and record.headers in ([], [("source", b"shop")])
            and (record.value == PAYLOAD_BYTES if word == "bytes"
                 else json.loads(record.value) == {"id": int(order), "state": "paid"}))


def check_reading(guide, place):
    # the same in each run: a program with them is not compiled again
    number = hashlib.sha256(repr(guide).encode()).hexdigest()[:8]
    topic, group = (f"{word}-{number}" for word in ("orders", "billing"))
    place.kafka.create_topic(topic, partitions=3)
    schema = make_program(guide, {"orders": topic, "billing": group})
    make_tables(place, schema)
    with psycopg2.connect(place.postgres.dsn(place.database, user=place.user)) as connection, \
            connection.cursor() as cursor:
        for order in range(1, ORDERS + 1):
            cursor.execute("SELECT outbox.publish(%s, %s, %s, %s)",
                           (topic, str(order), json.dumps({"id": order, "state": "paid"}), '{"source": "shop"}'))
    connection.close()
    write_again(place, topic, records(place, topic, dict.fromkeys(range(3), 0), ORDERS)[:COPIES])
    log = os.path.join(guide.folder, "log")
    open(log, "w").close()
    process = Process(guide.command(guide.run), log, folder=guide.folder,
                      environment={**os.environ, **environment(guide, place)})

    def all_done():
        assert process.running, process.tail()
        return len(payments(place)) >= ORDERS and committed(place, topic, group) == ends(place, topic)

    try:
        wait_for(all_done, 60, lambda: f"every order: {payments(place)}, {committed(place, topic, group)}; "
                                       f"the program says:\n{process.tail()}\n")
    finally:
        process.kill()
    assert payments(place) == expected_payments()


def expected_payments():
    return [(order, "paid") for order in range(1, ORDERS + 1)]


def payments(place):
    return place.postgres.execute("SELECT order_id, state FROM payments ORDER BY 1", database=place.database)


@dataclass
class Record:
    key: bytes
    value: bytes
    headers: list  # without the relay's own
    id: str        # of the header outbox-id
    all: list


def records(place, topic, since, count):
    """As soon as there are count of them."""
    return [Record(message.key(), message.value(),
                   [pair for pair in message.headers() if not pair[0].startswith("outbox-")],
                   dict(message.headers())["outbox-id"].decode(), message.headers())
            for message in consume(place, topic, since, count)]


def write_again(place, topic, copies):
    """As a relay does after a fault."""
    producer = Producer({"bootstrap.servers": place.kafka.bootstrap, "log_level": 0})
    for record in copies:
        producer.produce(topic, record.value, record.key, headers=record.all)
    assert producer.flush(30) == 0


def committed(place, topic, group):
    """{partition: offset}, with 0 for what has no commit."""
    consumer = Consumer({"bootstrap.servers": place.kafka.bootstrap, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition(topic, partition) for partition in ends(place, topic)], 30)
        return {partition.partition: max(partition.offset, 0) for partition in found}
    finally:
        consumer.close()


def _write_if_changed(path, content):
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == content:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
