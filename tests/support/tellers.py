"""Consumers that charge orders: docs/examples/rabbitmq.c and redis_queue.c, which are killed meanwhile."""

import collections
import os

from .process import Process, wait_for

LEASE = 1.0
ORDERS_A_DEATH = 20
TABLE = """
    CREATE TABLE charge (order_id text NOT NULL, amount numeric NOT NULL);
    CREATE FUNCTION take_a_while() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(CASE WHEN new.amount = 0 THEN %s ELSE 0.01 * random() END);
        RETURN new;
    END $$;
    CREATE TRIGGER charge_takes_a_while BEFORE INSERT ON charge
        FOR EACH ROW EXECUTE FUNCTION take_a_while()"""
SLOW = 3 * LEASE  # what the order with the amount 0 takes


def prepare(database):
    """The table of charges. The id of an order says its amount, so that a charge tells whether it is right."""
    database.execute(TABLE % SLOW)


def order_id(number):
    return f"order-{number}"


def charges(database):
    """How often each order was charged."""
    rows = database.execute("SELECT order_id, amount FROM charge")
    assert all(id == order_id(amount) for id, amount in rows)
    return collections.Counter(int(amount) for _, amount in rows)


def wait_slow(database):
    """Until somebody charges the order 0."""
    wait_for(lambda: database.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
                                      "AND datname = current_database()"), 30, "the slow charge")


def doubled_and_shuffled(numbers, chance):
    """Each number twice, near each other or far, since copies come at once or much later."""
    return sorted([*numbers, *numbers], key=lambda number: number + chance.expovariate(1 / 10))


class Tellers:
    """Processes of the example; a context manager that ends them by SIGTERM and expects status 0.
    arguments(number): of the teller with the number."""

    def __init__(self, program, arguments, numbers, folder):
        self.program, self.arguments, self.folder = program, arguments, folder
        self.processes = {number: self._start(number) for number in numbers}

    def _start(self, number):
        return Process([self.program, *self.arguments(number)],
                       os.path.join(self.folder, f"teller-{number}.log"))

    def __enter__(self):
        return self

    def __exit__(self, failure, *_):
        statuses = [process.stop() if process.running else "ended before"
                    for process in self.processes.values()]
        assert failure or not any(statuses), self.said()

    def said(self):
        return "\n".join(f"{process.pid}: {process.tail(10)}" for process in self.processes.values())

    def kill(self, number):
        assert self.processes[number].running, self.said()
        self.processes.pop(number).kill()

    def kill_one(self, chance):
        """SIGKILL; another one with its number takes its place."""
        number = chance.choice(sorted(self.processes))
        self.kill(number)
        self.start(number)

    def start(self, number):
        self.processes[number] = self._start(number)

    def wait_charged(self, database, count, timeout=120):
        wait_for(lambda: len(charges(database)) >= count, timeout, interval=0.05,
                 what=lambda: f"{count} charged orders ({len(charges(database))} now; {self.said()})")

    # --- what a test asks of each queue; send(numbers) puts orders into it ---

    def charge_while_killed(self, database, send, deaths, broker, chance):
        """Orders that come twice, deaths of a teller, and one of the broker, which is started again. Returns
        the numbers of all orders, each of which is charged by then."""
        orders = range(1, deaths * ORDERS_A_DEATH + 1)
        for death in range(deaths):
            first = death * ORDERS_A_DEATH
            send(doubled_and_shuffled(orders[first:first + ORDERS_A_DEATH], chance))
            self.wait_charged(database, first + chance.randint(1, ORDERS_A_DEATH - 5))
            self.kill_one(chance)
            if death == deaths // 2:
                broker.kill()
                broker.start()
        self.wait_charged(database, len(orders))
        return orders

    def charge_beside_a_slow_order(self, database, send):
        """The order 0 takes three times the lease. Without a claim, another teller would wait for it at its
        first copy; with one that is not renewed, after a lease. Returns the numbers of all orders."""
        send([0])
        wait_slow(database)
        send([0, 0, *range(1, 21)])
        self.wait_charged(database, 20, timeout=SLOW - LEASE / 2)
        assert 0 not in charges(database)
        self.wait_charged(database, 21)
        return range(21)
