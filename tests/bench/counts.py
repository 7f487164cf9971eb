"""Counts of what a relay does at rest and at a low rate. They say what its poll and its batching cost, on any machine."""

import glob
import os
import time

from support.process import wait_for

REST_S, RATE, SECONDS = 3, 100, 3


def wakeups(pid):
    """How often the threads of a process slept and were woken."""
    count = 0
    for path in glob.glob(f"/proc/{pid}/task/*/status"):
        with open(path) as file:
            count += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches:"))
    return count


def batches_of(path):
    """Record batches of a segment, which begin with their offset (8 bytes) and the length of the rest (4)."""
    with open(path, "rb") as file:
        segment = file.read()
    at = count = 0
    while at + 12 <= len(segment):
        at += 12 + int.from_bytes(segment[at + 8:at + 12], "big")
        count += 1
    return count


def batches(kafka, topic):
    """Record batches in a topic: the broker pays for each."""
    return sum(batches_of(path) for node in kafka.nodes.values()
               for path in glob.glob(os.path.join(node.folder, f"{glob.escape(topic)}-*", "*.log")))


def published(relay, count):
    relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) >= count, 60, "the records")


def write(database, topic, count, rate):
    """One message a transaction. The rate is of the clock: a late one does not move those after it."""
    connection = database.connect()
    began = time.monotonic()
    with connection.cursor() as cursor:
        for number in range(count):
            time.sleep(max(0, began + number / rate - time.monotonic()))
            cursor.execute("select outbox.publish(%s, %s, %s)", (topic, f"customer-{number}", "{}"))
    connection.close()


def count_work(database, kafka, topic, relay):
    """{name: count}. The first message has connected everything."""
    pid = relay.process.pid
    write(database, topic, 1, 1)
    published(relay, 1)
    time.sleep(1)  # what follows the last message belongs to no rest
    before = wakeups(pid)
    time.sleep(REST_S)  # the rest is what is measured
    rested = wakeups(pid) - before

    sent, before, messages = batches(kafka, topic), wakeups(pid), RATE * SECONDS
    write(database, topic, messages, RATE)
    published(relay, 1 + messages)
    woken = wakeups(pid) - before
    wait_for(lambda: batches(kafka, topic) > sent, what="batches in the log")
    return {"wakeups a second at rest": rested / REST_S,
            f"wakeups a message at {RATE}/s": woken / messages,
            f"record batches a message at {RATE}/s": (batches(kafka, topic) - sent) / messages}
