"""What `doctor` says of [lookback] and [check] sections."""

import pathlib

import pytest

from support.relay import run_command

BARRIER = pathlib.Path(__file__).resolve().parents[2] / "sql" / "barrier" / "postgres.sql"
SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
GOOD = f"transport = http\nurl = https://shop.example.com/lookback\nsecret = {SECRET}\n"


@pytest.fixture
def doctor(database, kafka, tmp_path):
    """doctor(lookback section, check section): (exit status, findings)."""
    def run(lookback="", check=GOOD, rest=""):
        path = tmp_path / "relay.ini"
        path.write_text(f'[postgres]\ndsn = {database.dsn}\n'
                        f'[kafka]\nbootstrap.servers = {kafka.bootstrap}\n{rest}'
                        f'[lookback "shop"]\ncheck = shop\n{lookback}[check "shop"]\n{check}')
        status, output, error = run_command(["doctor"], {"OUTBOX_RELAY_CONFIG": str(path)})
        assert error == ""
        return status, output

    return run


@pytest.fixture
def topics(kafka, topic):
    """The look-back topic, and that of dead letters."""
    dead = kafka.create_topic(f"{topic}_dead")
    yield f"topic = {topic}\ndead_letter = {dead}\n"
    kafka.delete_topic(dead)


def test_doctor_is_content_with_sections_that_can_work(doctor, topics, topic):
    status, output = doctor(topics)
    assert status == 0, output
    assert f"topic {topic}: " in output and f"topic {topic}_dead: " in output
    assert "[fail]" not in output and "lookback shop" not in output
    assert output.count("check shop") == output.count("url: its host shop.example.com has no address")


def test_doctor_misses_the_topics(doctor, topics, topic):
    status, output = doctor(f"topic = {topic}\ndead_letter = no.such.letters\ntopics = no.such.orders, {topic}.*\n")
    assert status == 1
    assert "[fail]   topics no.such.letters, no.such.orders: " in output
    assert f"{topic}.*" not in output
    status, output = doctor(topics.replace(f"topic = {topic}\n", "topic = no.such.lookback\n", 1))
    assert status == 1 and "[fail]   topic no.such.lookback: " in output


def test_doctor_asks_who_publishes_what_is_committed(database, doctor, topics):
    rest = f'[postgres "other"]\ndsn = {database.dsn}\n'
    status, output = doctor(f"postgres = other\n{topics}", rest=rest)
    assert "[warn]   lookback shop (" in output and "no publisher of this configuration publishes" in output
    assert "no publisher of this configuration" not in doctor(topics)[1]


@pytest.mark.parametrize("check, severity, words", [
    ("", "fail", "neither url nor allow is set"),
    ("url = https://shop.example.com/x\n", "warn", "requests are not signed"),
    (f"url = http://10.0.0.1/x\nnetworks = 10.0.0.0/8\nsecret = {SECRET}\n", "warn", "without TLS"),
    ("url = file:///etc/passwd\n", "fail", "url: "),
    (f"{GOOD}allow = shop.example.com\n", "fail", "allow: "),
    (f"{GOOD}networks = 10.0.0.0/99\n", "fail", "networks: "),
    (f"url = https://shop.example.com/x\nold_secret = {SECRET}\n", "fail", "old_secret is set, and secret"),
    ("url = https://shop.example.com/x\nsecret = hunter2\n", "fail", "secret: "),
    (f"{GOOD}tls_ca = /no/such/file\n", "fail", "tls_ca: /no/such/file cannot be read"),
    (f"{GOOD}tls_certificate = /etc/hostname\n", "fail", "tls_certificate and tls_key go together"),
    (f"{GOOD}connect_timeout = 30s\n", "warn", "connect_timeout is longer than timeout"),
    ("transport = sql\n", "fail", "transport = sql needs a dsn"),
    ("transport = sql\ndsn = host=127.0.0.1 port=1\n", "fail", "dsn: "),
    (f"{GOOD}types = bill\n", "fail", "messages of type shop may not ask")])
def test_doctor_says_which_setting_cannot_work(doctor, topics, check, severity, words):
    status, output = doctor(topics, check)
    findings = [line for line in output.splitlines() if words in line]
    assert findings and all(line.startswith(f"[{severity}]") for line in findings), output
    assert status == (1 if severity == "fail" else 0), output
    assert "hunter2" not in output


def test_doctor_says_that_each_prepare_has_to_name_a_service(doctor, topics):
    assert "check is not set" not in doctor(topics)[1]
    status, output = doctor(topics, f"{GOOD}[lookback \"bill\"]\ntypes = bill\ndefault = yes\n{topics}")
    assert status == 0 and "[info]   lookback bill (" in output and "check is not set" in output


def test_doctor_looks_for_the_function_of_a_service_that_is_a_database(database, doctor, topics):
    name = f"asking_{database.name}"[:60]
    database.execute(f"create role {name} login")
    try:
        service = f"transport = sql\ndsn = {database.postgres.dsn(database.name, user=name)}\n"
        status, output = doctor(topics, service)
        assert status == 1 and "has no function lookback_check(text, text[])" in output
        assert "cure: run sql/barrier/postgres.sql there, or set function\n" in output
        database.execute(BARRIER.read_text())
        status, output = doctor(topics, service)
        assert status == 1 and "lookback_check may not be called" in output
        database.execute(f"grant execute on function lookback_check(text, text[]) to {name}")
        status, output = doctor(topics, service)
        assert "[warn]   check shop (" in output and "lookback_check is volatile" in output
        assert "cure: set read_only = no if it writes" in output
        status, output = doctor(topics, f"{service}read_only = no\n")
        assert status == 0 and "check shop" not in output, output
        database.execute("alter function lookback_check(text, text[]) stable")
        status, output = doctor(topics, service)
        assert status == 0 and "check shop" not in output, output
    finally:
        database.execute(f"drop owned by {name}")
        database.execute(f"drop role {name}")


def test_doctor_names_what_the_role_lacks_for_the_look_back(database, kafka, login):
    settings = {**login("outbox_relay"), "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    assert "UPDATE on outbox.lookback_overdue" not in run_command(["doctor"], settings)[1]
    database.execute("revoke update on outbox.lookback_overdue from outbox_relay")
    database.execute("revoke execute on function outbox.lookback_tidy(bigint) from outbox_relay")
    status, output, _ = run_command(["doctor"], settings)
    assert status == 1 and "UPDATE on outbox.lookback_overdue" in output
    assert "EXECUTE on 1 functions of schema outbox (lookback_tidy" in output
