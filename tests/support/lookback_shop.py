"""The demonstration of the look-back: a shop whose processes die before they say what they did.

    lookback_shop.py serve --dsn DSN --port N --secret S     answers the relay's checks
    lookback_shop.py trade --dsn DSN --servers HOST:PORT …   orders, deaths, and the verdict
    lookback_shop.py verdict --dsn DSN --servers HOST:PORT … only the verdict

Each order is prepared with the look-back, placed in a transaction of the shop's own that begins
with the barrier (docs/guide/lookback-barrier.md), and committed or rolled back with the look-back; the
code that does so is docs/examples/lookback.py. The shop writes no message. trade runs `work` in
several processes and kills each of them (SIGKILL) with orders in its hands; one is stopped instead
(SIGSTOP), and its transactions stay open. Some orders name a service that answers nonsense.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from http.server import ThreadingHTTPServer

import psycopg2
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../docs/examples"))
from lookback import Checks, Lookback, in_transaction  # noqa: E402

TYPE, TOPIC = "order", "shop.orders"
TABLE = """
create table if not exists shop.orders (
    id text primary key, customer text not null, item text not null, quantity int not null)
"""
ITEMS = ["espresso machine", "filter paper", "grinder", "kettle", "mug", "scale"]
CUSTOMERS = ["Ada", "Barbara", "Edsger", "Grace", "Niklaus", "Tony"]
NONSENSE = b"Object reference not set to an instance of an object."
# What a worker does with an order, out of so many. Not said, and so in its hands when it is killed,
# are all but the first two.
DOINGS = {"commit": 60, "rollback": 12, "committed, killed": 12,
          "committed, asked at the wrong door": 2, "rolled back, killed": 4, "transaction open, killed": 5, "prepared, killed": 5}
HANGS = 5  # orders of the one that is stopped


class Refused(Exception):
    """The shop does not want this order."""


# --- the service that answers --------------------------------------------------------------------


class Door(Checks):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.path == "/nonsense":
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(NONSENSE)))
            self.end_headers()
            self.wfile.write(NONSENSE)
        else:
            super().do_POST()

    def log_message(self, *_):
        pass


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)  # without a look at the names of this machine
        self.server_name, self.server_port = self.server_address


def serve(options):
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    service = Service(("127.0.0.1", options.port), Door)
    service.secret = options.secret
    service.connect = lambda: psycopg2.connect(options.dsn)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    print("answers", flush=True)
    signal.sigwait(signals)


# --- a process of the shop -----------------------------------------------------------------------


def work(options):
    """Handles its orders, says what it does with each ("id<tab>doing"), waits to be killed."""
    chance = random.Random(f"{options.seed} {options.worker}")
    doings = chance.choices(list(DOINGS), DOINGS.values(), k=options.orders)
    if options.hangs:
        doings = ["transaction open, the process hangs"] * HANGS
    lookback = Lookback(options.servers, TYPE)
    connection = psycopg2.connect(options.dsn)
    open_ones = []
    # The open ones last, so that they are not asked about for long before the process dies.
    doings.sort(key=lambda doing: doing.startswith(("transaction open", "prepared")))
    for number, doing in enumerate(doings, 1):
        order = {"id": f"{options.worker}-{number:03}", "customer": chance.choice(CUSTOMERS),
                 "item": chance.choice(ITEMS), "quantity": chance.randint(1, 5)}
        fields = {"check_service": "nonsense"} if doing.endswith("door") else {}
        lookback.prepare(order["id"], TOPIC, order["id"], json.dumps(order), **fields)
        try:
            handle(options, lookback, connection, open_ones, order, doing)
        except Refused:
            pass
        except psycopg2.Error as error:  # this was slow, and the relay has asked before
            if error.pgcode != "LB001":
                raise
            connection.rollback()
            doing = "came too late"
        print(f"{order['id']}\t{doing}", flush=True)
    print("in hand", flush=True)
    signal.pause()


def handle(options, lookback, connection, open_ones, order, doing):
    def place(cursor):
        cursor.execute("insert into shop.orders (id, customer, item, quantity) "
                       "values (%(id)s, %(customer)s, %(item)s, %(quantity)s)", order)
        if doing == "rollback":
            raise Refused

    if doing in ("commit", "rollback"):
        in_transaction(lookback, connection, order["id"], place)
    elif doing != "prepared, killed":
        if doing.startswith("transaction open"):
            connection = psycopg2.connect(options.dsn)
            open_ones.append(connection)
        with connection.cursor() as cursor:
            cursor.execute("select lookback_begin(%s, %s)", (TYPE, order["id"]))
            place(cursor)
        if doing.startswith("committed"):
            connection.commit()
        elif doing.startswith("rolled back"):
            connection.rollback()


# --- the demonstration ---------------------------------------------------------------------------


class Worker:
    def __init__(self, options, name, hangs=False):
        self.name = name
        # They end with us, whatever becomes of us.
        self.child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, __file__, "work",
             "--dsn", options.dsn, "--servers", options.servers, "--worker", name,
             "--orders", str(options.orders // options.workers), "--seed", options.seed,
             *(["--hangs"] if hangs else [])],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.doings = {}

    def run_up(self):
        """Until it has in its hands what it will not finish."""
        for line in self.child.stdout:
            if line == "in hand\n":
                return
            order, doing = line.rstrip("\n").split("\t")
            self.doings[order] = doing
        sys.exit(f"lookback_shop: a process of the shop ended with {self.child.wait()}")

    def kill(self):
        self.child.kill()
        self.child.wait()


def trade(options):
    with contextlib.closing(psycopg2.connect(options.dsn)) as connection, connection, \
            connection.cursor() as cursor:
        cursor.execute(TABLE)
    options.seed = options.seed or str(time.time_ns())
    hung = Worker(options, "h", hangs=True)
    workers = [Worker(options, f"{number}") for number in range(1, options.workers + 1)]
    doings = {}
    hung.run_up()
    hung.child.send_signal(signal.SIGSTOP)
    doings.update(hung.doings)
    print(f"  process {hung.child.pid} hangs (SIGSTOP), {HANGS} transactions of orders open",
          flush=True)
    for worker in workers:
        worker.run_up()
        worker.kill()
        doings.update(worker.doings)
        left = Counter(doing for doing in worker.doings.values() if doing.endswith("killed"))
        print(f"  process {worker.child.pid} killed (SIGKILL) with {left.total()} of "
              f"{len(worker.doings)} orders in its hands: {left['committed, killed']} committed, "
              f"{left['transaction open, killed']} in open transactions, "
              f"{left['rolled back, killed']} rolled back, {left['prepared, killed']} not begun",
              flush=True)
    states = wait_until_settled(options, doings)
    decide_by_hand(options, states)
    correct = judge(options, doings)
    hung.kill()
    return correct


def states_of(options):
    """What the relay knows of each order: its decision, whose it is; or its state."""
    with contextlib.closing(psycopg2.connect(options.relay_dsn)) as connection, connection, \
            connection.cursor() as cursor:
        cursor.execute("""
            select p.biz_id, d.decision, coalesce(d.source, o.state, 'undecided'), o.last_error
            from outbox.lookback p
            left join outbox.lookback d on d.biz_type = p.biz_type and d.biz_id = p.biz_id
                and d.prepared_at = p.prepared_at and d.kind = 'decision'
            left join outbox.lookback_overdue o on o.biz_type = p.biz_type and o.biz_id = p.biz_id
                and o.prepared_at = p.prepared_at
            where p.kind = 'prepare' and p.biz_type = %s""", (TYPE,))
        return {biz_id: rest for biz_id, *rest in cursor}


def wait_until_settled(options, doings):
    """Every order is decided or parked."""
    end = time.monotonic() + options.patience
    terminal, told = sys.stdout.isatty(), None
    while True:
        states = states_of(options)
        counts = Counter(source for _, source, _ in states.values())
        line = (f"{len(states)} orders: {counts['message']} decided by what their process said, "
                f"{counts['check']} by asking the shop, {counts['parked']} parked, "
                f"{counts['undecided'] + counts['overdue']} undecided")
        if terminal or line != told:
            print(f"\r  {line}\033[K" if terminal else f"  {line}", end="" if terminal else "\n",
                  flush=True)
        told = line
        if states.keys() >= doings.keys() and not counts["undecided"] + counts["overdue"]:
            print(end="\n" if terminal else "")
            return states
        if time.monotonic() > end:
            sys.exit(f"lookback_shop: undecided after {options.patience:g} s")
        time.sleep(0.2 if terminal else 1)


def committed_orders(options):
    with contextlib.closing(psycopg2.connect(options.dsn)) as connection, connection, \
            connection.cursor() as cursor:
        cursor.execute("select id, customer, item, quantity from shop.orders")
        names = [column.name for column in cursor.description]
        return {row[0]: dict(zip(names, row)) for row in cursor}


def decide_by_hand(options, states):
    """The operator: what is parked and stands in the shop's table is to be published."""
    orders = committed_orders(options)
    found = sorted(order for order, (_, source, _) in states.items()
                   if source == "parked" and order in orders)
    if not found:
        return
    reason = "they are in the shop's table"
    shown = " ".join(found[:4]) + (" …" if found[4:] else "")
    print(f'  an operator: outbox-relay lookback commit {TYPE} {shown} --reason "{reason}"',
          flush=True)
    subprocess.run([options.program, "lookback", "commit", "--yes", "--reason", reason, TYPE,
                    *found], env={**os.environ, "DATABASE_URL": options.relay_dsn}, check=True,
                   stdout=subprocess.DEVNULL)


# --- the verdict ---------------------------------------------------------------------------------


def records(options):
    """What the topic has, up to its present end: order -> the payloads of its records."""
    found = defaultdict(list)
    consumer = Consumer({"bootstrap.servers": options.servers, "group.id": "shop-verdict",
                         "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 3})
    partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in partitions])
    ended, end = set(), time.monotonic() + options.patience
    while len(ended) < len(partitions):
        if time.monotonic() > end:
            sys.exit(f"lookback_shop: the topic was not read within {options.patience:g} s")
        record = consumer.poll(1)
        if record is None:
            continue
        if record.error():
            ended.add(record.partition())
        else:
            found[record.key().decode()].append(json.loads(record.value()))
    consumer.close()
    return found


def differences(orders, published, states):
    """Of the shop's table and the topic. What is parked must not be in the topic."""
    for order in sorted(orders.keys() | published.keys()):
        source = states[order][1] if order in states else "unknown to the relay"
        wanted = [orders[order]] if order in orders and source != "parked" else []
        if published.get(order, []) != wanted:
            yield (f"{order}: {'' if order in orders else 'not '}in the shop's table, "
                   f"{len(published.get(order, []))} times in the topic, {source}")


def judge(options, doings=None):
    """Prints what became of the orders and whether both sides agree; is that so?"""
    end = time.monotonic() + options.patience
    while True:
        states, orders, published = states_of(options), committed_orders(options), records(options)
        wrong = list(differences(orders, published, states))
        # A record may be under way; none goes away again.
        due = [order for order, (decision, _, _) in states.items()
               if decision == "commit" and order not in published]
        if not due or time.monotonic() > end:
            break
        time.sleep(0.2)
    if doings:
        show(doings, orders, published, states)
    parked = sum(source == "parked" for _, source, _ in states.values())
    print(f"\n  {len(states)} orders prepared; {len(orders)} in the shop's table, "
          f"{sum(map(len, published.values()))} records in the topic, {parked} parked")
    for line in wrong[:20]:
        print(f"  WRONG  {line}")
    print(f"  verdict: {len(wrong)} orders are wrong" if wrong else
          "  verdict: the shop's table and the topic agree")
    return not wrong


WAYS = {"message": "explicit", "check": "called back", "operator": "parked, then by an operator",
        "parked": "parked"}


def way(state):
    decision, source, _ = state
    return f"{decision}: {WAYS[source]}" if decision else WAYS.get(source, source)


def show(doings, orders, published, states):
    """How many went each way, and one order of each."""
    groups = defaultdict(list)
    for order, doing in doings.items():
        case = doing, order in orders, way(states[order]), len(published.get(order, []))
        groups[case].append(order)
    line = "  {:>6}  {:<36} {:<7} {:<36} {:>8}   {}"
    print("\n" + line.format("orders", "what their process did", "in shop", "how it was decided",
                             "in topic", "one of them"))
    for (doing, there, by, times), group in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(line.format(len(group), doing, "yes" if there else "no", by, times, group[0]))
    print("\n  Two of each, with their ways:")
    for order in sorted(order for group in groups.values() for order in group[:2]):
        note = states[order][2]
        print(f"    {order:<6} {doings[order]} -> {way(states[order])}"
              + (f" ({note})" if note else "")
              + (" -> in the topic" if order in published else " -> not in the topic"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("serve", "trade", "verdict", "work"))
    parser.add_argument("--dsn", required=True, help="of the shop")
    parser.add_argument("--relay-dsn", help="the relay's, to look what it knows")
    parser.add_argument("--servers", help="of Kafka")
    parser.add_argument("--port", type=int)
    parser.add_argument("--secret")
    parser.add_argument("--program", help="outbox-relay, for the operator")
    parser.add_argument("--orders", type=int, default=400)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--patience", type=float, default=180, help="seconds")
    parser.add_argument("--seed", default="")
    parser.add_argument("--worker")
    parser.add_argument("--hangs", action="store_true")
    options = parser.parse_args()
    parts = {"serve": serve, "trade": trade, "verdict": judge, "work": work}
    try:
        sys.exit(parts[options.part](options) is False)
    except KeyboardInterrupt:
        sys.exit(130)


main()
