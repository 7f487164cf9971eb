"""The demonstration of the inbox: consumers that charge orders, while everything around them repeats
and dies.

    inbox_shop.py trade --dsn DSN --servers HOST:PORT --program INBOX_EXAMPLE --folder FOLDER
    inbox_shop.py verdict --dsn DSN --servers HOST:PORT        only the verdict

A producer sends each order to shop.orders, and sends some again, since it has heard no
acknowledgement of them. Three consumers of a group, docs/examples/inbox.c each, charge them in
Postgres. One of them is killed (SIGKILL) with orders in its hands, another one takes its place, and
a third is asked to end: each time the partitions are shared anew. The amount of an order is its
number, so that a charge tells which order it is of.
"""

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import psycopg2
from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC, GROUP = "shop.orders", "billing"
PARTITIONS = 6
TABLE = "create table if not exists charge (customer text not null, amount numeric not null)"
CUSTOMERS = 50
AGAIN = 0.3  # of the orders are sent more than once
RATE = 100   # orders a second
SESSION_MS = "3000"  # after which a killed consumer's partitions are given to others


def say(text):
    print(f"  {text}", flush=True)


def wait_until(condition, what, patience):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"inbox_shop: {what} did not come within {patience:g} s")
        time.sleep(0.05)


def query(options, statement):
    with contextlib.closing(psycopg2.connect(options.dsn)) as connection, connection, \
            connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else None


def charged(options):
    return query(options, "select count(distinct amount) from charge")[0][0]


# --- the producer --------------------------------------------------------------------------------


class Till(threading.Thread):
    """Sends the orders, in the background."""

    def __init__(self, options):
        super().__init__(daemon=True)
        self.options, self.sent = options, 0

    def run(self):
        producer = Producer({"bootstrap.servers": self.options.servers, "linger.ms": 5,
                             "partitioner": "murmur2_random"})
        late = []
        for number in range(1, self.options.orders + 1):
            self._send(producer, number)
            if random.random() < AGAIN:
                late += [number] * random.randint(1, 2)
            if late and random.random() < 0.5:
                self._send(producer, late.pop(random.randrange(len(late))))
            time.sleep(1 / RATE)
        for number in late:
            self._send(producer, number)
        producer.flush()

    def _send(self, producer, number):
        producer.produce(TOPIC, key=f"customer-{number % CUSTOMERS}", value=str(number),
                         headers={"outbox-id": f"order-{number}"})
        producer.poll(0)
        self.sent += 1


# --- consumers -----------------------------------------------------------------------------------


class Teller:
    """A consumer: docs/examples/inbox.c."""

    def __init__(self, options, number):
        self.name, self.log = f"consumer {number}", os.path.join(options.folder, f"consumer-{number}.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(  # it ends with us, whatever becomes of us
                ["setpriv", "--pdeathsig", "KILL", "--", options.program, TOPIC, options.dsn,
                 "bootstrap.servers", options.servers, "session.timeout.ms", SESSION_MS],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def shares(self):
        """How many partitions it was given, each time."""
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [int(count) for count in re.findall(r"event=inbox_assigned .*partitions=(\d+)", log.read())]

    def check(self):
        if self.child.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                sys.exit(f"inbox_shop: {self.name} has ended: {log.read()[-2000:]}")


def wait_shared(tellers, options):
    """Until all partitions are somebody's, and each has some."""
    def shared():
        for teller in tellers:
            teller.check()
        shares = [teller.shares()[-1:] for teller in tellers]
        return all(share and share[0] for share in shares) and sum(share[0] for share in shares) == PARTITIONS

    wait_until(shared, "a share for each consumer", options.patience)
    say("rebalance: " + ", ".join(f"{teller.name} has {teller.shares()[-1]}" for teller in tellers)
        + f" of {PARTITIONS} partitions")


def trade(options):
    query(options, TABLE)
    tellers = [Teller(options, number) for number in (1, 2, 3)]
    wait_shared(tellers, options)
    till = Till(options)
    till.start()

    def wait_charged(share):
        wait_until(lambda: charged(options) >= options.orders * share, "charges", options.patience)

    wait_charged(0.3)
    dead = tellers.pop(0)
    dead.child.kill()
    dead.child.wait()
    say(f"{dead.name} is killed (SIGKILL), {charged(options)} of {options.orders} orders are charged")
    tellers.append(Teller(options, 4))
    wait_shared(tellers, options)
    wait_charged(0.7)
    leaver = tellers.pop(0)
    leaver.child.send_signal(signal.SIGTERM)
    say(f"{leaver.name} is asked to end (SIGTERM), {charged(options)} orders are charged")
    if leaver.child.wait(options.patience):
        sys.exit(f"inbox_shop: {leaver.name} ended with {leaver.child.returncode}")
    wait_shared(tellers, options)
    till.join()
    say(f"the producer has sent {options.orders} orders {till.sent} times")
    correct = judge(options)
    for teller in tellers:
        teller.child.terminate()
    for teller in tellers:
        teller.child.wait(options.patience)
    return correct


# --- the verdict ---------------------------------------------------------------------------------


def records(options):
    """How many there are, and how many of them the group is done with."""
    consumer = Consumer({"bootstrap.servers": options.servers, "group.id": GROUP, "log_level": 3})
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
    done = [max(0, place.offset) for place in consumer.committed(places, timeout=30)]
    consumer.close()
    return sum(ends), sum(done)


def judge(options):
    """Prints whether each order was charged once; is it so?"""
    wait_until(lambda: len(set(records(options))) == 1, "the end of all records", options.patience)
    times = Counter(int(amount) for amount, in query(options, "select amount from charge"))
    orders = range(1, options.orders + 1)
    wrong = [number for number in sorted(times.keys() | set(orders))
             if times[number] != (number in orders)]
    count = records(options)[0]
    print(f"\n  {options.orders} orders, {count} records in the topic, "
          f"{count - options.orders} of them copies; {times.total()} charges")
    for number in wrong[:20]:
        say(f"WRONG  order {number}: charged {times[number]} times")
    say(f"verdict: {len(wrong)} orders are wrong" if wrong else "verdict: each order is charged once")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("trade", "verdict"))
    parser.add_argument("--dsn", required=True, help="of the shop")
    parser.add_argument("--servers", required=True, help="of Kafka")
    parser.add_argument("--program", help="the consumer")
    parser.add_argument("--folder", help="for the consumers' logs")
    parser.add_argument("--orders", type=int, default=600)
    parser.add_argument("--patience", type=float, default=180, help="seconds")
    options = parser.parse_args()
    try:
        sys.exit(not {"trade": trade, "verdict": judge}[options.part](options))
    except KeyboardInterrupt:
        sys.exit(130)


main()
