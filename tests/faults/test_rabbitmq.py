"""docs/examples/rabbitmq.c: orders in a queue of a real RabbitMQ that come twice, consumers that are killed,
and a broker that is killed and started again. Each order is charged once."""

import os
import time

import pytest

from support import tellers
from support.process import wait_for
from support.rabbitmq import RabbitMQ
from support.relay import beside
from support.tellers import LEASE, Tellers, charges, order_id

QUEUE, DEAD = "orders", "orders.dead"


@pytest.fixture(scope="module")
def broker():
    if not os.path.exists(beside("tests/integration/rabbitmq_example")):
        pytest.skip("built without librabbitmq: run tests/support/install.sh build")
    with RabbitMQ() as server:
        yield server


@pytest.fixture
def start_tellers(broker, database, tmp_path):
    """start_tellers(count): they have declared the queues, which are empty."""
    def start(count):
        tellers.prepare(database)
        claims = f'postgres name=billing lease={LEASE:g}s timeout=300ms dsn="{database.dsn}"'
        started = Tellers(beside("tests/integration/rabbitmq_example"),
                          lambda _: [broker.url, QUEUE, database.dsn, claims], range(count), tmp_path)
        wait_for(lambda: broker.count(QUEUE) is not None, 60, "the queue", interval=0.1)
        return started

    yield start
    for queue in (QUEUE, DEAD):
        broker.delete(queue)


def send(broker, numbers):
    broker.publish(QUEUE, [(order_id(number), str(number)) for number in numbers])


def wait_empty(broker):
    """A teller may still have a copy, whose claim was somebody else's, and give it back at its end."""
    wait_for(lambda: broker.count(QUEUE) == 0, 60, "the end of the copies", interval=0.1)


def test_each_order_is_charged_once_while_consumers_and_the_broker_are_killed(
        broker, database, start_tellers, chance, scale):
    with start_tellers(3) as running:
        orders = running.charge_while_killed(
            database, lambda numbers: send(broker, numbers), scale(50, 5), broker, chance)
        wait_empty(broker)
    assert broker.count(QUEUE) <= 3 and broker.count(DEAD) == 0
    assert charges(database) == {number: 1 for number in orders}


def test_a_slow_charge_keeps_its_claim_and_its_copy_stops_nobody(broker, database, start_tellers):
    with start_tellers(2) as running:
        orders = running.charge_beside_a_slow_order(database, lambda numbers: send(broker, numbers))
        wait_empty(broker)
    assert broker.count(QUEUE) <= 2 and broker.count(DEAD) == 0
    assert charges(database) == {number: 1 for number in orders}


def test_an_order_that_can_never_be_charged_goes_to_the_dead_queue(broker, database, start_tellers):
    wrong = [(None, b"5"), ("", b"5"), ("order-1", b"ten"), ("order-1", b"\xff")]
    with start_tellers(1) as running:
        broker.publish(QUEUE, [*wrong, (order_id(1), "1")])
        running.wait_charged(database, 1)
        wait_for(lambda: broker.count(DEAD) == len(wrong), 60, "the dead orders")
    assert sorted(broker.take_all(DEAD), key=str) == sorted(wrong, key=str)
    assert charges(database) == {1: 1}


def test_a_refused_order_of_another_user_that_would_expire_is_kept_and_stops_nobody(
        broker, database, start_tellers):
    """RabbitMQ refuses a message in the name of another user (user_id), and a dead order waits for a person."""
    other = broker.add_user("shop")
    with start_tellers(1) as running:
        broker.publish(QUEUE, [(order_id(2), "ten")], url=other, user_id="shop", expiration="2000")
        send(broker, [1])
        running.wait_charged(database, 1)
        wait_for(lambda: broker.count(DEAD) == 1, 10, "the dead order")
    time.sleep(2.5)
    assert broker.take_all(DEAD) == [(order_id(2), b"ten")]


def test_a_queue_that_was_deleted_is_declared_and_consumed_again(broker, database, start_tellers):
    with start_tellers(1) as running:
        broker.delete(QUEUE)
        wait_for(lambda: broker.count(QUEUE) is not None, 30, "the queue", interval=0.1)
        send(broker, [1])
        running.wait_charged(database, 1)
