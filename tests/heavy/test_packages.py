"""Debian packages: relay/packaging/build deb makes them, lintian finds nothing wrong, and they live a whole life in a
fresh system of their release: installed, running under their unit, upgraded, removed, purged.

The fresh systems are chroots without systemd as process 1. So the test does what systemd would do with the installed
unit: it reads the command line, the account, the credentials and the watchdog from the unit's file."""
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.auditor import count_records
from support.chroot import Chroot
from support.process import free_port, wait_for
from support.systemd import Notifications, Unit

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["liboutbox-dev", "liboutbox0", "outbox-relay", "outbox-relay-bench"]
RELEASES = ["bookworm", pytest.param("trixie", marks=pytest.mark.full("builds the packages once more, in Debian 13"))]
PAGE = (ROOT / "docs/guide/deploy/bare-metal.md").read_text()
CREDENTIALS = "run/credentials/outbox-relay.service"
OWN_RELEASE = "bookworm"  # install.sh is made for it
CONFIGURATION, STATE = "/etc/outbox-relay/relay.ini", "/var/lib/outbox-relay"


def build_here(folder):
    built = subprocess.run([ROOT / "relay/packaging/build", "deb", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-5000:] + built.stderr[-5000:]


def build_inside(release, folder):
    """As docs/guide/deploy/debian.md says, in a fresh system: the names of libraries differ between releases."""
    system = Chroot(release)
    subprocess.run(["git", "clone", "--quiet", ROOT, system.path("/source")], check=True)
    system.apt("install", "git", "ca-certificates")
    system.run("git", "config", "--system", "--add", "safe.directory", "*")
    system.apt("build-dep", "/source/relay/packaging")
    system.run("/source/relay/packaging/build", "deb", "/packages")
    for made in system.path("/packages").iterdir():
        shutil.copy(made, folder)


@pytest.fixture(scope="module", params=RELEASES)
def packages(request, tmp_path_factory):
    """(release, folder)"""
    folder = tmp_path_factory.mktemp("packages")
    if request.param == OWN_RELEASE:
        build_here(folder)
    else:
        build_inside(request.param, folder)
    return request.param, folder


def package_files(folder):
    """{package: path}"""
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb") if "-dbgsym" not in path.name}


def test_every_package_is_built(packages):
    assert sorted(package_files(packages[1])) == PACKAGES


def test_lintian_finds_nothing(packages):
    found = subprocess.run(["lintian", "--fail-on", "error,warning", "--tag-display-limit", "0",
                            *packages[1].glob("*.changes")], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def field(package, name):
    return subprocess.run(["dpkg-deb", "--field", package, name], capture_output=True, text=True,
                          check=True).stdout.strip()


def dependencies(package):
    """Without those on packages of the same build."""
    return ", ".join(part for part in field(package, "Depends").split(", ") if "(= " not in part)


def make_next_version(package, folder, version):
    """The same package with a higher version and one more line in the sample configuration."""
    inside = folder / package.name.split("_")[0]
    subprocess.run(["dpkg-deb", "--raw-extract", package, inside], check=True)
    control = inside / "DEBIAN/control"
    control.write_text(control.read_text().replace(field(package, "Version"), version))
    for sample in inside.glob("usr/share/outbox-relay/relay.ini"):
        sample.write_text(sample.read_text() + "; of the next version\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", inside, f"{inside}.deb"], check=True,
                   stdout=subprocess.DEVNULL)
    return Path(f"{inside}.deb")


class System(Chroot):
    def install(self, *packages):
        names = []
        for package in packages:
            inside = self.path("/packages") / package.name
            inside.parent.mkdir(exist_ok=True)
            shutil.copy(package, inside)
            names.append(f"/packages/{package.name}")
        self.apt("install", *names)

    def unit(self):
        """As systemd reads it: the unit of the package and the administrator's drop-ins."""
        unit, = (path for path in self.path("/").glob("usr/lib/systemd/system/outbox-relay.service"))
        drop_ins = self.path("/etc/systemd/system/outbox-relay.service.d").glob("*.conf")
        return Unit(unit.read_text(), *(path.read_text() for path in sorted(drop_ins)))

    def account(self):
        return re.search(r"^outbox-relay:[^:]*:(\d+):(\d+):", self.path("/etc/passwd").read_text(), re.MULTILINE)


def block(kind, beginning):
    """A block of the page, from which administrators copy."""
    found, = (text for text in re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
              if text.startswith(beginning))
    return found


@pytest.fixture(scope="module")
def system(packages):
    """For all tests of a release: each installs what it needs."""
    return System(packages[0])


@pytest.fixture
def configured(database, kafka):
    """configured(system): what the page bare-metal.md tells an administrator to write."""
    def configure(system):
        text = block("ini", "[postgres]").replace("kafka-1.example.com:9092", kafka.bootstrap)
        ini = system.path(CONFIGURATION)
        ini.write_text(text.replace("listen = 9187", f"listen = {free_port()}"))
        os.chmod(ini, 0o640)
        os.chown(ini, 0, int(system.account()[2]))
        secret = system.path("/etc/outbox-relay/dsn")
        secret.write_text(database.dsn + "\n")
        os.chmod(secret, 0o600)
        drop_in = system.path("/etc/systemd/system/outbox-relay.service.d/override.conf")
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(block("ini", "[Service]"))
        return {path: (path.read_text(), path.stat().st_mode) for path in (ini, secret, drop_in)}
    return configure


class Service:
    """The installed unit's process, started as systemd starts it."""

    def __init__(self, system, log):
        unit = system.unit()
        self.notifications = Notifications(system.path("/run/notify"))
        self._load_credentials(system, unit)
        words = ["env", "-i", "PATH=/usr/sbin:/usr/bin", "NOTIFY_SOCKET=/run/notify",
                 f"WATCHDOG_USEC={unit.watchdog_us()}", f"CREDENTIALS_DIRECTORY=/{CREDENTIALS}",
                 "setpriv", f"--reuid={unit.one('User')}", f"--regid={unit.one('Group')}", "--init-groups",
                 "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL",
                 *unit.command()]
        self.process = system.start(words, log)

    @staticmethod
    def _load_credentials(system, unit):
        folder = system.path(CREDENTIALS)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o755)
        uid, gid = (int(number) for number in system.account().groups())
        for name, source in unit.credentials().items():
            shutil.copy(system.path(source), folder / name)
            os.chmod(folder / name, 0o400)
            os.chown(folder / name, uid, gid)

    def wait_ready(self):
        def said():
            assert self.process.running, self.process.output()
            return "READY=1" in self.notifications.states()

        wait_for(said, 60, "READY=1")
        return self

    @property
    def pid(self):
        """Of the relay itself, which chroot.sh started."""
        pid, = self.notifications.senders()
        return pid

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        status = self.process.wait(60)
        self.notifications.close()
        os.unlink(self.notifications.path)
        assert "STOPPING=1" in self.notifications.states()
        return status


def publish_under_the_unit(system, database, kafka, topic, log):
    """Three rows, by a relay that runs as the account of the package."""
    before = count_records(kafka.bootstrap, [topic])
    service = Service(system, log).wait_ready()
    uids = re.search(r"^Uid:\s+(.*)", Path(f"/proc/{service.pid}/status").read_text(), re.MULTILINE)[1].split()
    assert set(uids) == {system.account()[1]}
    database.execute("insert into outbox.message (topic, key, payload) "
                     "select %s, i::text, '{}' from generate_series(1, 3) i", (topic,))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == before + 3, 60, "three records")
    assert service.stop() == 0, service.process.output()


def differences(before, after):
    return {path: (before.get(path), after.get(path)) for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)}


def check_unit(system):
    verified = system.status("systemd-analyze", "verify", "--man=no", "outbox-relay.service")
    assert "outbox-relay" not in verified.stdout + verified.stderr
    system.run("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", "outbox-relay.service")
    system.path("/run/systemd/systemd-units-load").unlink(missing_ok=True)  # of systemd-analyze


def test_the_package_of_the_relay_lives_and_leaves_nothing(packages, system, configured, database, kafka, topic,
                                                           tmp_path):
    made = package_files(packages[1])
    relay = made["outbox-relay"]
    system.apt("satisfy", dependencies(relay))
    before, accounts = system.files(), system.accounts()

    system.install(relay)
    system.run("outbox-relay", "--version")
    for name in ("alerts.yml", "dashboard.json"):
        assert system.path(f"/usr/share/outbox-relay/{name}").read_text() == (ROOT / "docs/examples" / name).read_text()
    check_unit(system)
    configuration = configured(system)
    owner = tuple(int(number) for number in system.account().groups())
    for folder, wanted in ((STATE, owner), ("/etc/outbox-relay", (0, owner[1]))):
        status = system.path(folder).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (*wanted, 0o750), folder
    publish_under_the_unit(system, database, kafka, topic, tmp_path / "log")

    kept = system.path(f"{STATE}/orders/window")
    system.run("setpriv", "--reuid=outbox-relay", "--regid=outbox-relay", "--clear-groups",
               "sh", "-euc", 'mkdir "${1%/*}" && echo ids >"$1"', "sh", f"{STATE}/orders/window")

    def is_kept():
        assert kept.read_text() == "ids\n" and kept.stat().st_uid == owner[0]
        assert all((path.read_text(), path.stat().st_mode) == was for path, was in configuration.items())

    system.install(make_next_version(relay, tmp_path, "99.0"))
    assert system.path("/usr/share/outbox-relay/relay.ini").read_text().endswith("; of the next version\n")
    assert system.run("dpkg-query", "-W", "-f", "${Version}", "outbox-relay") == "99.0"
    is_kept()
    publish_under_the_unit(system, database, kafka, topic, tmp_path / "log")

    system.apt("remove", "outbox-relay")
    assert not system.path("/usr/bin/outbox-relay").exists()
    is_kept()

    for drop_in in system.path("/etc/systemd/system").glob("outbox-relay.service.d"):
        shutil.rmtree(drop_in)  # the administrator's
    shutil.rmtree(system.path("run/credentials"))  # systemd's
    system.apt("purge", "outbox-relay")
    assert differences(before, system.files()) == {}
    # The account stays, and nobody can log in to it.
    more = system.accounts() - accounts
    assert not accounts - system.accounts()
    assert {line.split(":")[1].strip() for line in more} == {"outbox-relay"} and len(more) == 4
    password, = (line.split(":")[2] for line in more if line.startswith("etc/shadow:"))
    shell, = (line.rsplit(":", 1)[1] for line in more if line.startswith("etc/passwd:"))
    assert password.startswith("!") and shell == "/usr/sbin/nologin"


def test_an_upgrade_restarts_the_service_and_a_removal_stops_it(packages, tmp_path):
    """No systemd runs in the chroot, so this reads what the package's scripts tell it."""
    subprocess.run(["dpkg-deb", "--control", package_files(packages[1])["outbox-relay"], tmp_path], check=True)
    after = (tmp_path / "postinst").read_text()
    assert "_dh_action=restart" in after and "deb-systemd-invoke $_dh_action 'outbox-relay.service'" in after
    before = (tmp_path / "prerm").read_text()
    assert "deb-systemd-invoke stop 'outbox-relay.service'" in before
    assert '"$1" = remove' in before and '"$1" = upgrade' not in before


def test_the_bench_and_the_libraries_work(packages, system, database, kafka):
    made = package_files(packages[1])
    system.install(made["outbox-relay"], made["outbox-relay-bench"])
    # Its exit status judges the rates of this machine, which a thousand rows do not show.
    measured = system.status("env", f"DATABASE_URL={database.dsn}",
                             f"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap}",
                             "outbox-relay-bench", "--rows", "1000", "--runs", "1", "drain")
    assert re.search(r"^drain of 1000 rows of 4096 B +rows/s +\d", measured.stdout, re.MULTILINE), measured.stderr

    page = (ROOT / "docs/guide/deploy/debian.md").read_text()
    compiler, = re.findall(r"liboutbox-dev_\*\.deb (.*)$", page, re.MULTILINE)
    line, = re.findall(r"^(cc .*)$", page, re.MULTILINE)
    system.apt("install", *compiler.split())
    system.install(made["liboutbox0"], made["liboutbox-dev"])
    system.run("sh", "-euc", line)
    assert system.run("/dedup", "exact ids=1M path=/tmp/ids", text="0 a\n1 b\n2 a\n") == "handled a\nhandled b\n"
