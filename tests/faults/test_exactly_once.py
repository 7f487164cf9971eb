"""delivery = exactly-once: what a reader of committed records sees, once each, through faults."""

import pytest

from faults.test_kills import LEASE, kill_at_a_random_moment

EXACT = {"slot_delivery": "exactly-once", "slot_lease": LEASE}


def test_records_come_once_and_in_order(make_relay, make_writers, judge, scale):
    relay = make_relay(**EXACT).wait_ready()
    writers = make_writers(connections=4, keys=50)
    writers.run(scale(20_000))
    writers.huge_transaction(50_000)
    judge(0, 0, none=True)
    assert relay.metric("relay_skipped_total") == 0
