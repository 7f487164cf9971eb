"""PostgreSQL with TLS and passwords, as managed clouds have it: verify-full, client certificates, SCRAM with channel
binding, and passwords that a command prints. A mistake gives one line that names the place and the cure, and a password
changes under load without a restart of the relay."""
import os
import shutil
import time

import pytest

from support.auditor import settle
from support.certificates import Authority
from support.files import replace
from support.postgres import Postgres
from support.process import process_ended, wait_for
from support.relay import run_command

ROTATIONS = 30  # with --full; a tenth by default
LOGIN = "relay"
HBA = """hostssl all certified all cert
hostssl all {login} all scram-sha-256
hostnossl all {login} all reject
host all all 127.0.0.1/32 trust
local all all trust
"""


class SecuredPostgres(Postgres):
    """Its certificate is for localhost, and logins of the relay need TLS."""

    def __init__(self, authority):
        super().__init__(ssl="on", ssl_cert_file="'server.pem'", ssl_key_file="'server.key'", ssl_ca_file="'ca.pem'",
                         max_prepared_transactions=0)
        self.authority = authority
        self.install(*authority.issue("server", "DNS:localhost"))
        self.write("ca.pem", authority.read("certificate"))
        self.write("pg_hba.conf", HBA.format(login=LOGIN).encode())

    def write(self, name, content):
        path = os.path.join(self.data, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, 0o600)
        if self.user:
            shutil.chown(path, self.user, self.user)

    def install(self, certificate, key):
        for name, path in (("server.pem", certificate), ("server.key", key)):
            with open(path, "rb") as file:
                self.write(name, file.read())

    def present(self, certificate, key):
        """Shows another certificate from the next connection on."""
        before = self.execute("SELECT pg_conf_load_time()")
        self.install(certificate, key)
        self.execute("SELECT pg_reload_conf()")
        wait_for(lambda: self.execute("SELECT pg_conf_load_time()") != before, 30, "the reload")

    def secured(self, database, user=LOGIN, **options):
        """A connection string of the relay."""
        words = {"host": "localhost", "port": self.port, "dbname": database, "user": user, "sslmode": "verify-full",
                 "sslrootcert": self.authority.certificate, **options}
        return " ".join(f"{name}={value}" for name, value in words.items() if value is not None)


@pytest.fixture(scope="module")
def server(authority):
    with SecuredPostgres(authority) as running:
        yield running


@pytest.fixture(scope="module")
def database(server, make_database):
    server.create_database("secured")
    made = make_database(server, "secured").migrate()
    made.execute(f"CREATE ROLE {LOGIN} LOGIN PASSWORD 'first' IN ROLE outbox_relay")
    made.execute("CREATE ROLE certified LOGIN IN ROLE outbox_relay")
    return made


@pytest.fixture
def password(database, tmp_path):
    """The file that password_command prints; the password is that of the login."""
    path = tmp_path / "password"
    path.write_text("first\n")
    database.execute(f"ALTER ROLE {LOGIN} PASSWORD 'first'")
    return path


def migrate_status(dsn, **settings):
    """A command that connects: (exit status, what it says of failures)."""
    variables = {f"OUTBOX_RELAY_POSTGRES_{name.upper()}": value for name, value in settings.items()}
    status, _, error = run_command(["migrate", "status"], {"DATABASE_URL": dsn, **variables})
    return status, error


def refused(dsn, *words, **settings):
    """One line, which has these words."""
    status, error = migrate_status(dsn, **settings)
    assert status != 0
    assert error.count("\n") == 1, error
    for word in words:
        assert word in error, error
    return error


def client_options(authority):
    certificate, key = authority.issue("certified")
    os.chmod(key, 0o600)
    return {"sslcert": certificate, "sslkey": key}


def test_scram_with_channel_binding_by_a_command(database, server, password):
    dsn = server.secured(database.name, channel_binding="require")
    assert migrate_status(dsn, password_command=f"cat {password}") == (0, "")


def test_client_certificate(database, server, authority):
    dsn = server.secured(database.name, user="certified", **client_options(authority))
    assert migrate_status(dsn) == (0, "")


def test_wrong_authority(database, server, password, tmp_path):
    other = Authority(tmp_path / "other", "other")
    refused(server.secured(database.name, sslrootcert=other.certificate), f"localhost:{server.port}/{database.name}",
            "certificate verify failed", "correct sslrootcert", password_command=f"cat {password}")


def test_wrong_name_and_expired_certificate(database, server, authority, password):
    dsn, command = server.secured(database.name), f"cat {password}"
    try:
        server.present(*authority.issue("elsewhere", "DNS:elsewhere.example"))
        refused(dsn, f"localhost:{server.port}", "elsewhere.example", "write the host in the dsn", password_command=command)
        server.present(*authority.issue("expired", "DNS:localhost", days=-1))
        refused(dsn, f"localhost:{server.port}", "certificate has expired", "renew it", password_command=command)
    finally:
        server.present(*authority.issue("server", "DNS:localhost"))


def test_wrong_password(database, server, password):
    password.write_text("another\n")
    said = refused(server.secured(database.name), f"localhost:{server.port}", "password authentication failed",
                   "password_command", password_command=f"cat {password}")
    assert "another" not in said


@pytest.mark.parametrize("command, words", [
    ("echo secret; exit 3", ["exit status 3", "run it by hand"]),
    ("echo secret >&2; kill -9 $$", ["signal 9 ended it", "run it by hand"]),
    ("echo; echo secret", ["first line of its output is empty"]),
    ("no-such-program", ["exit status 127"]),
    ("printf 'sec\\0ret'", ["NUL byte"]),
    ("yes secret | tr -d '\\n' | head -c 100000", ["16384 bytes or more"]),
])
def test_a_command_that_fails(database, server, command, words):
    said = refused(server.secured(database.name), "[postgres] password_command", *words, password_command=command)
    assert "secret" not in said


def test_a_command_without_end_is_killed_with_its_children(database, server, tmp_path):
    pids = tmp_path / "pids"
    begun = time.monotonic()
    refused(server.secured(database.name), "[postgres] password_command", "within 300 ms", "password_timeout",
            password_command=f"echo $$ > {pids}; sleep 600 & echo $! >> {pids}; wait", password_timeout="300ms")
    assert time.monotonic() - begun < 10
    wait_for(lambda: all(process_ended(int(pid)) for pid in pids.read_text().split()), 10, "the end of the command")


def test_the_command_has_no_file_of_the_relay(database, server, password, tmp_path):
    listed = tmp_path / "files"
    command = f"ls /proc/self/fd > {listed}; cat {password}"
    assert migrate_status(server.secured(database.name), password_command=command) == (0, "")
    assert set(listed.read_text().split()) <= {"0", "1", "2", "3"}  # 3: the folder that ls reads


def test_sigterm_ends_the_command(database, server, kafka, make_relay, tmp_path):
    pids = tmp_path / "pid"
    relay = make_relay(database_url=server.secured(database.name), postgres_password_timeout="60s",
                       postgres_password_command=f"echo $$ >> {pids}; exec sleep 600")
    wait_for(pids.exists, 30, "the command")
    begun = time.monotonic()
    relay.stop()
    assert time.monotonic() - begun < 20
    wait_for(lambda: all(process_ended(int(pid)) for pid in pids.read_text().split()), 10, "the end of the command")


def end_sessions(database, user=LOGIN):
    database.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [user])


def has_session(database, user, issuer):
    """A session whose client certificate is of this authority."""
    return database.execute("SELECT count(*) FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)"
                            " WHERE usename = %s AND issuer_dn LIKE %s", [user, f"%{issuer}"])[0][0] > 0


def test_password_changes_under_load(database, server, kafka, topic, password, make_relay, make_writers, scale):
    calls = password.with_name("calls")
    relay = make_relay(database_url=server.secured(database.name, channel_binding="require"),
                       postgres_password_command=f"echo >> {calls}; cat {password}")
    relay.wait_ready()
    with make_writers(dsn=database.dsn, rate=100):
        for number in range(scale(ROTATIONS)):
            secret = f"secret-{number}"
            database.execute(f"ALTER ROLE {LOGIN} PASSWORD '{secret}'")
            password.write_text(secret + "\n")
            before = calls.stat().st_size
            end_sessions(database)
            wait_for(lambda: calls.stat().st_size > before, 30, "a new connection")
            relay.wait_ready()
    verdict = settle(database.dsn, kafka.bootstrap, [topic])
    assert verdict.committed > 0 and verdict.published == verdict.committed, verdict
    assert verdict.lost == 0 and verdict.duplicates == 0, verdict

    said = relay.output() + relay.get("/readyz")[1] + relay.get("/metrics")[1]
    assert "secret-" not in said


def test_certificates_of_both_sides_change_under_load(
        database, server, authority, kafka, topic, make_database, make_relay, make_writers, tmp_path):
    """A new authority comes in the usual steps: trusted by both sides, used by both, and the old one is gone."""
    server.create_database("rotated")
    database = make_database(server, "rotated").migrate()  # its roles are those of the server
    successor = Authority(tmp_path / "successor", "successor")
    ca, certificate, key = (str(tmp_path / name) for name in ("ca.pem", "relay.pem", "relay.key"))

    def trust(*authorities):
        content = [each.read("certificate") for each in authorities]
        replace(ca, *content)
        server.write("ca.pem", b"".join(content))

    def show(issuer):
        for path, source in zip((certificate, key), issuer.issue("certified")):
            with open(source, "rb") as file:
                replace(path, file.read())

    def renew(issuer):
        server.present(*issuer.issue("server", "DNS:localhost"))
        end_sessions(database, "certified")
        relay.wait_ready()
        wait_for(lambda: has_session(database, "certified", issuer_shown[0]), 30, "a new session")

    issuer_shown = ["authority"]
    trust(authority)
    show(authority)
    relay = make_relay(database_url=server.secured(database.name, user="certified", sslrootcert=ca, sslcert=certificate,
                                                   sslkey=key))
    relay.wait_ready()
    try:
        with make_writers(dsn=database.dsn, rate=100):
            trust(authority, successor)
            renew(authority)
            show(successor)
            issuer_shown[0] = "successor"
            renew(successor)
            trust(successor)
            renew(successor)
        verdict = settle(database.dsn, kafka.bootstrap, [topic])
    finally:
        server.write("ca.pem", authority.read("certificate"))
        server.present(*authority.issue("server", "DNS:localhost"))
    assert verdict.committed > 0 and verdict.published == verdict.committed, verdict
    assert verdict.lost == 0 and verdict.duplicates == 0, verdict
