"""The demonstration: a shop that places and changes orders, and tells Kafka through the outbox.

    shop.py --dsn DSN --servers HOST:PORT [--seconds 8] [--rate 500] [--connections 12]

Each connection places orders and changes existing ones, each change under the row lock of its order,
some several in one transaction, some for orders that another connection holds just now; some roll
back, and one transaction stays open from the first order to the last. The message is written with
outbox.publish() in the same transaction, after the row that it speaks of, with the order's version as
"seq". With --relay it shows how rows become records, from the relay's metrics.
"""

import argparse
import json
import random
import sys
import threading
import time

import psycopg2
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

TOPIC = "shop.orders"
TABLE = """
create table if not exists shop.orders (
    id bigint generated always as identity primary key,
    customer text not null, item text not null, quantity int not null,
    status text not null default 'placed', version int not null default 1,
    changed_at timestamptz not null default clock_timestamp())
"""
PLACE = "insert into shop.orders (customer, item, quantity) values (%s, %s, %s) returning *"
CHANGE = """
update shop.orders set status = %s, quantity = greatest(1, quantity + %s), version = version + 1,
    changed_at = clock_timestamp() where id = %s returning *
"""
PUBLISH = f"select outbox.publish('{TOPIC}', %s::text, %s::jsonb, %s::jsonb)"

ITEMS = ["espresso machine", "filter paper", "grinder", "kettle", "mug", "scale"]
CUSTOMERS = ["Ada", "Barbara", "Edsger", "Grace", "Niklaus", "Tony"]
STEPS = ["paid", "packed", "sent", "delivered", "returned"]


class Shop:
    def __init__(self, options):
        self.options = options
        self.orders = []      # ids of committed orders
        self.committed = 0    # messages
        self.rolled_back = 0  # messages
        self.lock = threading.Lock()  # guards the three above
        self.commits = {}     # (order, version) -> when the commit was answered, until it is read
        self.ended = threading.Event()
        self.failure = None

    def run(self):
        with psycopg2.connect(self.options.dsn) as connection, connection.cursor() as cursor:
            cursor.execute(TABLE)
        connection.close()
        threads = [threading.Thread(target=self._guarded, args=(work, number), daemon=True)
                   for number, work in enumerate(
                       [self._stay_open] + [self._serve] * self.options.connections)]
        for thread in threads:
            thread.start()
        reader = Reader(self)
        Display(self, reader).watch(self.options.seconds)
        self.ended.set()
        for thread in threads:
            thread.join(30)
        if self.failure:
            raise self.failure
        reader.wait_for_all()

    def _guarded(self, work, number):
        try:
            connection = psycopg2.connect(self.options.dsn)
            work(connection, random.Random(number))
            connection.close()
        except Exception as failure:  # told by the main thread
            self.failure = self.failure or failure
            self.ended.set()

    def _stay_open(self, connection, chance):
        """The long transaction. Nobody waits for it, and its messages come when it commits."""
        work = Work(connection, chance)
        for _ in range(3):
            work.place()
        self.ended.wait()
        work.change(work.placed[0], 1)
        self._commit(work)

    def _serve(self, connection, chance):
        pause = self.options.connections / self.options.rate
        while not self.ended.wait(pause * chance.uniform(0.5, 1.5)):
            work = Work(connection, chance)
            known = self._some_orders(chance)
            if not known or chance.random() < 0.25:
                work.place()
            else:
                for order in known:
                    work.change(order, chance.choice([1, 1, 1, 2, 3]))
            if chance.random() < 0.1:
                connection.rollback()
                with self.lock:
                    self.rolled_back += len(work.messages)
            else:
                self._commit(work)

    def _some_orders(self, chance):
        """Mostly recent ones, so that connections meet at them; sorted, so that none deadlock."""
        with self.lock:
            recent = self.orders[-40:]
        return sorted(chance.sample(recent, min(len(recent), chance.choice([1, 1, 1, 2]))))

    def _commit(self, work):
        work.connection.commit()
        now = time.monotonic()
        self.commits.update((message, now) for message in work.messages)
        with self.lock:
            self.orders += work.placed
            self.committed += len(work.messages)


class Work:
    """The statements of one transaction."""

    def __init__(self, connection, chance):
        self.connection = connection
        self.cursor = connection.cursor()
        self.chance = chance
        self.placed = []
        self.messages = []  # (order, version)

    def place(self):
        self.placed.append(self._tell("order-placed", PLACE, (
            self.chance.choice(CUSTOMERS), self.chance.choice(ITEMS), self.chance.randint(1, 5))))

    def change(self, order, times):
        """The update takes the row's lock; the message is written after it."""
        for _ in range(times):
            self._tell("order-changed", CHANGE, (
                self.chance.choice(STEPS), self.chance.randint(-1, 1), order))

    def _tell(self, event, statement, parameters):
        self.cursor.execute(statement, parameters)
        number, customer, item, quantity, status, version, changed_at = self.cursor.fetchone()
        payload = {"order": number, "seq": version, "customer": customer, "item": item,
                   "quantity": quantity, "status": status, "at": changed_at.isoformat()}
        self.cursor.execute(PUBLISH, (str(number), json.dumps(payload),
                                      json.dumps({"event": event})))
        self.messages.append((number, version))
        return number


class Reader:
    """A consumer of the topic: it counts records and notes how long after its commit each came."""

    def __init__(self, shop):
        self.shop = shop
        self.records = 0
        self.delays = []  # seconds
        self.consumer = Consumer({"bootstrap.servers": shop.options.servers, "group.id": "shop-demo",
                                  "enable.auto.commit": False, "fetch.wait.max.ms": 5,
                                  "log_level": 3})
        partitions = self.consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
        self.consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING)
                              for number in partitions])
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            records = self.consumer.consume(1000, timeout=0.02)
            now = time.monotonic()
            for record in records:
                if record.error() is None:
                    self.records += 1
                    payload = json.loads(record.value())
                    committed_at = self.shop.commits.pop((payload["order"], payload["seq"]), now)
                    self.delays.append(max(0.0, now - committed_at))

    def take_delay(self):
        """The median since the last call, in milliseconds."""
        delays, self.delays = sorted(self.delays), []
        return delays[len(delays) // 2] * 1000 if delays else 0.0

    def wait_for_all(self, seconds=20):
        end = time.monotonic() + seconds
        while self.records < self.shop.committed:
            if time.monotonic() > end:
                sys.exit(f"shop: {self.shop.committed - self.records} records have not come "
                         f"{seconds} s after the last commit")
            time.sleep(0.02)


class Display:
    """One line, drawn anew on a terminal: what the shop committed, what the consumer has."""

    def __init__(self, shop, reader):
        self.shop = shop
        self.reader = reader
        self.before = (time.monotonic(), 0, 0)

    def watch(self, seconds):
        end = time.monotonic() + seconds
        terminal = sys.stdout.isatty()
        while time.monotonic() < end and not self.shop.ended.wait(0.5 if terminal else 2):
            line = self._line(max(0, end - time.monotonic()))
            print(f"\r  {line}\033[K" if terminal else f"  {line}", end="" if terminal else "\n",
                  flush=True)
        if terminal:
            print()

    def _line(self, left):
        now, committed, records = time.monotonic(), self.shop.committed, self.reader.records
        then, committed_then, records_then = self.before
        self.before = (now, committed, records)
        spent = now - then
        return (f"{committed:6,} rows committed ({(committed - committed_then) / spent:4.0f}/s)   "
                f"{records:6,} records received ({(records - records_then) / spent:4.0f}/s)   "
                f"lag {max(0, committed - records):3} rows, {self.reader.take_delay():5.1f} ms   "
                f"{left:2.0f} s left")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--servers", required=True, help="of Kafka")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=float, default=500, help="transactions a second, at most")
    parser.add_argument("--connections", type=int, default=12)
    shop = Shop(parser.parse_args())
    try:
        shop.run()
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"  {len(shop.orders):,} orders, {shop.committed:,} messages committed, "
          f"{shop.rolled_back:,} rolled back; all committed ones were received")


main()
