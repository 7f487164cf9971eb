"""What an application writes through a driver is what a consumer gets."""

import pytest

from drivers.drivers import DRIVERS, EACH_TIME
from drivers.harness import build, check, ends, write

CASES = [pytest.param(driver, pooled, id=f"{driver.name}-{'pgbouncer' if pooled else 'direct'}")
         for driver in DRIVERS for pooled in (False, True)]


def write_and_check(driver, place, pooled):
    build(driver)
    since = ends(place, place.topic)
    ways = write(driver, place, pooled)
    missing = set(driver.refused.items()) - {(way, rule) for word, way, *rest in ways if word == "refused"
                                             for rule in rest}
    assert not missing, f"not refused: {missing}"
    check(driver, place, ways, since)


@pytest.mark.parametrize("driver, pooled", [case for case in CASES if case.values[0].name in EACH_TIME])
def test_consumer_gets_what_the_application_had(driver, pooled, place):
    write_and_check(driver, place, pooled)


@pytest.mark.rotated
@pytest.mark.parametrize("driver, pooled", [case for case in CASES if case.values[0].name not in EACH_TIME])
def test_consumer_gets_what_the_application_had_by_turns(driver, pooled, place):
    write_and_check(driver, place, pooled)
