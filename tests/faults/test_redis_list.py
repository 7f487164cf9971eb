"""docs/examples/redis_queue.c: orders in a list of a real Redis that come twice, consumers that are killed with
an order in their own list, and a Redis that is killed and started again. Each order is charged once."""

import pytest

from support import tellers
from support.process import wait_for
from support.redis import Redis
from support.relay import beside
from support.tellers import LEASE, Tellers, charges, order_id

QUEUE = "orders"


@pytest.fixture
def queue():
    with Redis(appendonly="yes", appendfsync="always") as server:
        yield server


@pytest.fixture
def start_tellers(queue, database, tmp_path):
    def start(count):
        tellers.prepare(database)
        claims = f"redis url={queue.url} name=billing lease={LEASE:g}s timeout=300ms"
        return Tellers(
            beside("tests/integration/redis_queue_example"),
            lambda number: ["127.0.0.1", queue.port, QUEUE, f"billing-{number}", database.dsn, claims],
            range(count), tmp_path)

    return start


def send(queue, numbers):
    queue.client.lpush(QUEUE, *(f"{order_id(number)} {number}" for number in numbers))


def left(queue):
    """Entries of all lists."""
    return {key: queue.client.lrange(key, 0, -1) for key in queue.client.keys(f"{QUEUE}*")
            if queue.client.type(key) == b"list"}


def wait_empty(queue):
    wait_for(lambda: not left(queue), 60, what=lambda: f"the end of {left(queue)}")


def test_each_order_is_charged_once_while_consumers_and_redis_are_killed(
        queue, database, start_tellers, chance, scale):
    with start_tellers(3) as running:
        orders = running.charge_while_killed(
            database, lambda numbers: send(queue, numbers), scale(50, 5), queue, chance)
        wait_empty(queue)
    assert charges(database) == {number: 1 for number in orders}


def test_the_order_of_a_dead_consumer_that_does_not_come_back_is_charged_by_another_one(
        queue, database, start_tellers):
    with start_tellers(1) as running:
        send(queue, [0])
        tellers.wait_slow(database)
        running.kill(0)
        assert left(queue) == {b"orders:processing:billing-0": [b"order-0 0"]}
        running.start(1)
        running.wait_charged(database, 1)
        wait_empty(queue)
    assert charges(database) == {0: 1}


def test_a_slow_charge_keeps_its_claim_and_its_copy_stops_nobody(queue, database, start_tellers):
    """Nor is the order taken for one of a dead consumer."""
    with start_tellers(2) as running:
        orders = running.charge_beside_a_slow_order(database, lambda numbers: send(queue, numbers))
        wait_empty(queue)
    assert charges(database) == {number: 1 for number in orders}


def test_an_order_that_can_never_be_charged_goes_to_the_dead_list(queue, database, start_tellers):
    wrong = [b"order-1", b" 1", b"", b"x" * 1025 + b" 1", b"order-1 ten", b"order-1 \xff", b"\xff 1"]
    with start_tellers(1) as running:
        queue.client.lpush(QUEUE, *wrong)
        send(queue, [1])
        running.wait_charged(database, 1)
        wait_for(lambda: left(queue) == {b"orders:dead": wrong[::-1]}, 60, what=lambda: f"{left(queue)}")
    assert charges(database) == {1: 1}
