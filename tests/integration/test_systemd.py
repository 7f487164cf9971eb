"""The unit, and the relay as a service of systemd: it says when it is ready, reloads and stops, and that its
loops turn. systemd is not process 1 here, so that the test has the socket that systemd would have."""

import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from support.process import wait_for
from support.relay import binary
from support.systemd import Notifications, Unit
from support.threads import Stopped, thread_of

UNIT = pathlib.Path(__file__).parents[2] / "relay/packaging/outbox-relay.service"
WATCHDOG = 1.5  # seconds, of WatchdogSec


@pytest.fixture
def manager(tmp_path):
    notifications = Notifications(tmp_path / "notify")
    yield notifications
    notifications.close()


@pytest.fixture
def service(make_relay, manager):
    return make_relay(wrapper=["env", f"NOTIFY_SOCKET={manager.path}", f"WATCHDOG_USEC={int(WATCHDOG * 1e6)}"])


def pings(manager, count, since):
    return wait_for(lambda: manager.times(since=since)[count - 1:], 60, f"{count} messages of the watchdog")


def test_the_service_says_what_it_does(service, manager):
    wait_for(lambda: "READY=1" in manager.states(), 60, "READY=1")
    service.process.child.send_signal(signal.SIGHUP)
    wait_for(lambda: len(manager.states()) == 3, 60, "the end of the reload")
    assert service.stop() == 0
    ready, reloading, again, stopping = manager.states()
    assert (ready, again, stopping) == ("READY=1", "READY=1", "STOPPING=1")
    # Type=notify-reload (systemd 253) ignores a reload whose time it does not learn.
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", reloading)
    assert manager.senders() == {service.process.pid}  # NotifyAccess=main


def test_ready_does_not_wait_for_kafka(make_relay, manager):
    """A start that waits would be ended by TimeoutStartSec of systemd, again and again."""
    make_relay(wrapper=["env", f"NOTIFY_SOCKET={manager.path}"], bootstrap="127.0.0.1:1")
    wait_for(lambda: "READY=1" in manager.states(), 60, "READY=1")


def test_a_start_fails_without_ready(make_relay, manager):
    relay = make_relay(wrapper=["env", f"NOTIFY_SOCKET={manager.path}"], database_url="postgresql://127.0.0.1:1/none")
    assert relay.wait() != 0
    assert manager.received == []


def test_the_watchdog_hears_twice_in_each_of_its_intervals(service, manager):
    wait_for(lambda: "READY=1" in manager.states(), 60, "READY=1")
    begun = time.monotonic()
    pings(manager, 12, begun)
    times = manager.times(since=begun)
    late = [after - before for before, after in zip(times, times[2:]) if after - before > WATCHDOG]
    assert not late, f"the time of two messages: {late}"


def test_another_process_s_watchdog_hears_nothing(service, manager):
    service.stop()
    heard = len(manager.times())
    service.start(WATCHDOG_PID="1").wait_ready()
    assert service.stop() == 0
    assert len(manager.times()) == heard


@pytest.mark.rotated
@pytest.mark.parametrize("name", ["main", "shard"])
def test_a_loop_that_hangs_stops_the_watchdog(service, manager, name):
    pings(manager, 1, 0.0)
    pid = service.process.pid
    with Stopped(thread_of(pid, name)):
        begun = time.monotonic()
        # A worker hangs when its last turn is 10 s ago; messages that were sent before then do not count.
        wait_for(lambda: time.monotonic() > begun + 10 and
                 time.monotonic() - manager.times()[-1] > 2 * WATCHDOG, 60, "silence")
        if name == "shard":
            assert service.wait_event("loop_stalled")
            assert service.get("/livez")[0] == 503
    pings(manager, 3, time.monotonic())  # it goes on, as a worker does that only was slow
    assert service.stop() == 0


def findings_of_verify(root, unit):
    """systemd-analyze wants the programs of the unit, and the targets that it names."""
    units = root / "usr/lib/systemd/system"
    for folder in (units, root / "usr/bin", root / "bin"):
        folder.mkdir(parents=True)
    for target in pathlib.Path("/usr/lib/systemd/system").glob("*.target"):
        shutil.copy(target, units)
    shutil.copy(binary(), root / "usr/bin/outbox-relay")
    shutil.copy("/bin/kill", root / "bin/kill")
    (units / UNIT.name).write_text(unit)
    return subprocess.run(["systemd-analyze", "verify", "--man=no", f"--root={root}", UNIT.name],
                          capture_output=True, text=True).stderr


def test_the_unit_is_valid(tmp_path):
    unit = UNIT.read_text()
    assert findings_of_verify(tmp_path / "good", unit) == ""
    assert "WatchdogSecs" in findings_of_verify(tmp_path / "bad", unit.replace("WatchdogSec", "WatchdogSecs"))
    assert Unit(unit).one("Type") == "notify"


def test_the_unit_may_do_little():
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", UNIT],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
