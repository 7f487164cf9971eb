"""Counts of what a relay does at rest and at a low rate. They say what its poll costs, on any machine."""

import glob
import os
import time

REST_S, RATE, SECONDS = 3, 100, 3


def wakeups(pid):
    """How often the threads of a process slept and were woken."""
    count = 0
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path) as file:
            count += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))
    return count


def write(database, topic, count, rate):
    """One message a transaction. The rate is of the clock: a late one does not move those after it."""
    connection = database.connect()
    began = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(count):
            time.sleep(max(0, began + number / rate - time.monotonic()))
            cursor.execute("select outbox.publish(%s, %s, %s)", (topic, f"customer-{number}", "{}"))
    connection.close()


def count_work(database, topic, relay):
    """{name: count}"""
    def publish(count):
        until = count + (relay.metric("relay_published_total") or 0)
        write(database, topic, count, RATE)
        relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) >= until, 60, "the records")

    pid = relay.process.pid
    publish(1)  # it connects everything
    time.sleep(1)  # what follows the last message belongs to no rest
    before = wakeups(pid)
    time.sleep(REST_S)  # the rest is what is measured
    rested, before = wakeups(pid) - before, wakeups(pid)
    publish(RATE * SECONDS)
    return {"wakeups a second at rest": rested / REST_S,
            f"wakeups a message at {RATE}/s": (wakeups(pid) - before) / (RATE * SECONDS)}
