"""Kafka with TLS and passwords, as managed clouds have it: own authority, client certificates, SASL PLAIN and SCRAM. A
mistake gives one line that names the place and the cure; certificates and passwords change under load without a restart
of the relay, and no message is lost or doubled."""
import re
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import sidecar
from support.application import Application
from support.auditor import count_messages, read_topics, settle
from support.certificates import Authority
from support.inbox import produce
from support.lookback import Case
from support.process import wait_for
from support.relay import run_command
from support.secured_kafka import LOGIN, SecuredKafka

ROTATIONS = 10  # with --full; one by default
FIRST = "first-secret"


@pytest.fixture(scope="module")
def kafka(authority):
    with SecuredKafka(authority, FIRST) as cluster:
        yield cluster


@pytest.fixture
def client(authority, tmp_path):
    """The files of the relay's certificate: (certificate, key)."""
    (tmp_path / "client.key").touch(0o600)
    return install(authority.issue("client"), tmp_path / "client.pem", tmp_path / "client.key")


@pytest.fixture
def password(tmp_path):
    path = tmp_path / "password"
    path.write_text(FIRST + "\n")
    path.chmod(0o600)
    return path


def install(pair, certificate, key):
    for source, target in zip(pair, (certificate, key)):
        shutil.copyfile(source, target)
    return certificate, key


def secured(kafka, listener, **properties):
    """Settings of make_relay for a listener; properties: of [kafka], with underscores for dots."""
    own = {"ssl_ca_location": kafka.authority.certificate,
           "security_protocol": "SASL_SSL" if listener in ("PLAIN", "SCRAM") else "SSL", **properties}
    return {"bootstrap": kafka.servers(listener), **{f"kafka_{name}": value for name, value in own.items()
                                                     if value is not None}}


def with_password(kafka, mechanism, password, **properties):
    listener = "PLAIN" if mechanism == "PLAIN" else "SCRAM"
    return secured(kafka, listener, sasl_mechanism=mechanism, sasl_username=LOGIN, sasl_password_file=password,
                   **properties)


def with_certificate(kafka, client, **properties):
    return secured(kafka, "MUTUAL", ssl_certificate_location=client[0], ssl_key_location=client[1], **properties)


def all_kinds(kafka, client, password):
    return {"TLS": secured(kafka, "TLS"), "mutual TLS": with_certificate(kafka, client),
            **{mechanism: with_password(kafka, mechanism, password)
               for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")}}


@pytest.mark.parametrize("kind", ["TLS", "mutual TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_publishing(kind, database, kafka, topic, client, password, make_relay, make_writers):
    delivery = "exactly-once" if kind in ("mutual TLS", "SCRAM-SHA-512") else "at-least-once"
    make_relay(**all_kinds(kafka, client, password)[kind], publisher_delivery=delivery).wait_ready()
    make_writers().run(transactions=200)
    judge(delivery, database, kafka, topic)


def judge(delivery, database, kafka, topic):
    isolation = "read_committed" if delivery == "exactly-once" else "read_uncommitted"
    # The ends of partitions count the marks of transactions as well.
    wait_for(lambda: sum(1 for _ in read_topics(kafka.bootstrap, [topic], isolation)) >= count_messages(database.dsn), 60,
             "every record")
    verdict = settle(database.dsn, kafka.bootstrap, [topic], isolation=isolation)
    assert verdict.committed > 0 and verdict.published == verdict.committed, verdict
    assert verdict.correct and verdict.lost == 0 and verdict.duplicates == 0, verdict


def test_a_broker_that_is_not_verified(database, kafka, topic, make_relay, make_writers):
    """Whoever turns the check off gets what he asks for."""
    make_relay(**secured(kafka, "TLS", ssl_ca_location=None, enable_ssl_certificate_verification="false")).wait_ready()
    make_writers().run(transactions=20)
    judge("at-least-once", database, kafka, topic)


# --- mistakes ----------------------------------------------------------------------------------------------------


def doctor(settings):
    """What doctor says of Kafka's failures: (exit status, the lines)."""
    variables = {("OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS" if name == "bootstrap" else f"OUTBOX_RELAY_{name.upper()}"): value
                 for name, value in settings.items()}
    status, output, error = run_command(["doctor"], {"DATABASE_URL": "host=127.0.0.1 port=1", **variables})
    assert error == ""
    lines = output.splitlines()
    at = [number for number, line in enumerate(lines) if line.startswith("[fail]") and "kafka main" in line]
    assert len(at) == 1, output
    return " ".join(line.strip() for line in lines[at[0]:at[0] + 2])


REFUSED = "refuses the client's certificate"
MISTAKES = {
    "a wrong authority": ["certificate is refused", "ssl.ca.location"],
    "no client certificate": [REFUSED, "ssl.certificate.location"],
    "a client certificate of strangers": [REFUSED, "ssl.certificate.location"],
    "an expired client certificate": [REFUSED, "ssl.certificate.location"],
    "a wrong password for PLAIN": ["refuses the user name or the password", "sasl.password"],
    "a wrong password for SCRAM": ["refuses the user name or the password", "sasl.password"],
    "a mechanism that is not offered": ["SCRAM-SHA-512", "set sasl.mechanism"],
    "a password where none is taken": ["takes no password", "security.protocol"],
    "no TLS": ["without TLS", "security.protocol"],  # a broker that ends looks the same: no line in the log of run
}
OF_THE_BROKER = {
    "a wrong name": ["for another host", "bootstrap.servers"],
    "an expired certificate": ["certificate has expired", "renew"],
}


@pytest.fixture
def mistaken(kafka, client, password, authority, tmp_path):
    """Settings for each of MISTAKES."""
    other = Authority(tmp_path / "strangers", "strangers")
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-secret\n")
    wrong.chmod(0o600)
    made = {
        "a wrong authority": secured(kafka, "TLS", ssl_ca_location=other.certificate),
        "no client certificate": secured(kafka, "MUTUAL"),
        "a client certificate of strangers": with_certificate(kafka, other.issue("client")),
        "an expired client certificate": with_certificate(kafka, authority.issue("expired-client", days=-1)),
        "a wrong password for PLAIN": with_password(kafka, "PLAIN", wrong),
        "a wrong password for SCRAM": with_password(kafka, "SCRAM-SHA-512", wrong),
        "a mechanism that is not offered": {**with_password(kafka, "PLAIN", password),
                                            "bootstrap": kafka.servers("SCRAM")},
        "a password where none is taken": {**with_password(kafka, "PLAIN", password), "bootstrap": kafka.servers("TLS")},
        "no TLS": secured(kafka, "TLS", security_protocol=None, ssl_ca_location=None),
    }
    assert made.keys() == MISTAKES.keys()
    return made


@pytest.fixture
def of_the_broker(kafka, authority):
    """Presents one of OF_THE_BROKER."""
    pairs = {"a wrong name": authority.issue("elsewhere", "DNS:elsewhere.example"),
             "an expired certificate": authority.issue("expired", "DNS:localhost", days=-1)}
    yield lambda mistake: kafka.present("TLS", *pairs[mistake])
    kafka.present_own("TLS")


def doctor_says(mistake, settings):
    said = doctor(settings)
    for word in [settings["bootstrap"], "cure: ", *{**MISTAKES, **OF_THE_BROKER}[mistake]]:
        assert word in said, (mistake, said)
    assert "secret" not in said


def test_doctor_names_place_and_cure(mistaken, kafka):
    with ThreadPoolExecutor(len(mistaken)) as pool:  # each waits for some seconds
        list(pool.map(doctor_says, mistaken.keys(), mistaken.values()))


def says_one_line(relay, words):
    refused = relay.wait_event("kafka_refused")[0]
    for word in words:
        assert word in refused["error"] + refused["cure"], refused

    def failures():
        return [line for line in relay.output().splitlines()
                if re.search("event=kafka_|level=error", line) and "level=info" not in line]

    assert len(failures()) == 1, failures()
    assert "secret" not in relay.output()


def test_run_says_it_in_one_line(mistaken, make_relay):
    relays = {mistake: make_relay(**settings) for mistake, settings in mistaken.items() if mistake != "no TLS"}
    for relay in relays.values():
        relay.wait_event("kafka_refused")
    time.sleep(5)  # librdkafka tries again every second, and nothing may be said of it: there is no condition for that
    for mistake, relay in relays.items():
        says_one_line(relay, MISTAKES[mistake])


@pytest.mark.rotated
@pytest.mark.parametrize("mistake", OF_THE_BROKER)
def test_a_broker_that_is_mended(mistake, of_the_broker, kafka, make_relay):
    of_the_broker(mistake)
    doctor_says(mistake, secured(kafka, "TLS"))
    relay = make_relay(**secured(kafka, "TLS"))
    says_one_line(relay, OF_THE_BROKER[mistake])
    relay.wait_for(lambda: OF_THE_BROKER[mistake][0] in relay.get("/readyz?verbose")[1], 30, "the same in /readyz")
    kafka.present_own("TLS")
    relay.wait_ready()


# --- rotations ---------------------------------------------------------------------------------------------------


def replace(target, content):
    """As Kubernetes changes a secret: the file is a symbolic link that is replaced in one step."""
    real = target.with_name(f"{target.name}-{time.monotonic_ns()}")
    real.write_bytes(content)
    real.chmod(0o600)
    link = target.with_name(f"{target.name}.new")
    link.symlink_to(real)
    link.replace(target)


def works_anew(relay, kafka):
    """Connections that are open end, and records go out on new ones."""
    kafka.cut()
    before = acknowledged(relay)
    relay.wait_for(lambda: acknowledged(relay) > before, 60, "a record on a new connection")


def acknowledged(relay):
    return relay.metric("relay_published_total") or 0


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_password_changes_under_load(delivery, database, kafka, topic, password, make_relay, make_writers, scale):
    relay = make_relay(**with_password(kafka, "SCRAM-SHA-512", password), publisher_delivery=delivery).wait_ready()
    try:
        with make_writers(rate=100):
            for number in range(scale(ROTATIONS)):
                secret = f"secret-{number}"
                kafka.change_password(secret, ["SCRAM-SHA-512"])
                replace(password, f"{secret}\n".encode())
                works_anew(relay, kafka)
        judge(delivery, database, kafka, topic)
    finally:
        kafka.change_password(FIRST, ["SCRAM-SHA-512"])
    relay.wait_event("kafka_files_changed", properties="sasl.password")
    assert "secret-" not in relay.output() + relay.get("/readyz?verbose")[1] + relay.get("/metrics")[1]


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_certificates_and_authority_change_under_load(delivery, database, kafka, topic, authority, client, make_relay,
                                                      make_writers, scale, tmp_path):
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(authority.read("certificate"))
    settings = with_certificate(kafka, client, ssl_ca_location=bundle)
    relay = make_relay(**settings, publisher_delivery=delivery).wait_ready()
    present_authority = authority
    try:
        with make_writers(rate=100):
            for number in range(scale(ROTATIONS)):
                fresh = Authority(tmp_path / f"authority-{number}", f"authority-{number}")
                both = [present_authority, fresh]
                # The order of a change that has no gap: both trust both, then both show the new one.
                kafka.trust("MUTUAL", both)
                replace(bundle, b"".join(each.read("certificate") for each in both))
                renewed(relay, "ssl.ca.location", number + 1)
                certificate, key = fresh.issue(f"client-{number}")
                replace(client[0], open(certificate, "rb").read())
                refused(relay, "key values mismatch", number + 1)  # the pair is half written
                works_anew(relay, kafka)
                replace(client[1], open(key, "rb").read())
                renewed(relay, "ssl.certificate.location, ssl.key.location", number + 1)
                kafka.trust("MUTUAL", [fresh])  # in force once the certificate is shown, which comes after it
                kafka.present("MUTUAL", *fresh.issue("broker", "DNS:localhost"))
                works_anew(relay, kafka)
                present_authority = fresh
        judge(delivery, database, kafka, topic)
    finally:
        kafka.trust("MUTUAL", [authority])
        kafka.present_own("MUTUAL")


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_certificate_that_the_broker_refuses_is_replaced(delivery, database, kafka, topic, authority, client, make_relay,
                                                           make_writers, tmp_path):
    """Records in flight get no answer: the successor of the producer finds out which of them are written."""
    other = Authority(tmp_path / "other", "other")
    relay = make_relay(**with_certificate(kafka, client), publisher_delivery=delivery).wait_ready()
    try:
        with make_writers(rate=100):
            relay.wait_for(lambda: acknowledged(relay) > 0, 60, "the first record")
            kafka.trust("MUTUAL", [other])

            def is_refused():
                kafka.cut()
                return relay.events("kafka_refused")

            relay.wait_for(is_refused, 60, "the refusal")  # the broker answers before it trusts others
            certificate, key = other.issue("client-other")
            replace(client[0], open(certificate, "rb").read())
            replace(client[1], open(key, "rb").read())
            relay.process.send(signal.SIGHUP)
            before = acknowledged(relay)
            relay.wait_for(lambda: acknowledged(relay) > before, 60, "a record with the new certificate")
        judge(delivery, database, kafka, topic)
    finally:
        kafka.trust("MUTUAL", [authority])


def renewed(relay, properties, count):
    relay.wait_event("kafka_files_changed", count=count, properties=properties)


def refused(relay, words, count):
    relay.wait_for(lambda: len([event for event in relay.events("kafka_files_refused") if words in event["error"]]) >= count,
                   30, "the refusal")


def delivered(application, first, count):
    application.wait_ids(f"id-{first + number}" for number in range(count))


@pytest.mark.parametrize("kind", ["mutual TLS", "SCRAM-SHA-256"])
def test_a_sidecar_consumes_through_a_rotation(kind, database, kafka, topic, dead_topic, authority, client, password,
                                               make_relay, tmp_path):
    """At least once; its store of ids leaves out what comes again."""
    settings = all_kinds(kafka, client, password)[kind]
    path = tmp_path / "relay.ini"
    with Application() as application:
        path.write_text(sidecar.configuration(settings["bootstrap"], topic, tmp_path / "state", application.url, {}))
        relay = make_relay(config=path, **settings).wait_ready()
        produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i % 10}", "{}") for i in range(500)])
        delivered(application, 0, 500)
        try:
            if kind == "mutual TLS":
                install(authority.issue("client-2"), *client)
            else:
                kafka.change_password("another-secret", [kind])
                replace(password, b"another-secret")
            relay.process.send(signal.SIGHUP)
            relay.wait_event("kafka_files_changed")
            kafka.cut()
            produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i % 10}", "{}") for i in range(500, 1000)])
            delivered(application, 500, 500)
            assert len(application.ids) == 1000
        finally:
            if kind != "mutual TLS":
                kafka.change_password(FIRST, [kind])


def key_store(pair, path):
    """Writes a PKCS #12 file, which librdkafka always reads itself."""
    subprocess.run(["openssl", "pkcs12", "-export", "-in", pair[0], "-inkey", pair[1], "-out", path, "-passout",
                    "pass:store"], check=True, capture_output=True)
    return path


def test_a_sidecar_does_not_end_for_a_half_written_key_store(kafka, topic, dead_topic, authority, make_relay, tmp_path):
    """The file breaks after it was accepted, while a slow request holds up the change of the consumer."""
    answered = threading.Event()
    store = key_store(authority.issue("client-4"), tmp_path / "client.p12")
    settings = secured(kafka, "MUTUAL", ssl_keystore_location=store, ssl_keystore_password="store")
    path = tmp_path / "relay.ini"
    with Application(lambda _: answered.wait(60) and 200) as application:
        path.write_text(sidecar.configuration(settings["bootstrap"], topic, tmp_path / "state", application.url,
                                              {"drain": "60s"}))
        relay = make_relay(config=path, **settings).wait_ready()
        produce(kafka.bootstrap, topic, [("id-0", "k", "{}")])
        wait_for(lambda: application.open, 60, "the slow request")
        key_store(authority.issue("client-5"), store)
        relay.process.send(signal.SIGHUP)
        relay.wait_event("inbox_revoked")
        store.write_bytes(b"half")
        answered.set()
        produce(kafka.bootstrap, topic, [("id-1", "k", "{}")])
        delivered(application, 0, 2)
    assert not relay.events("inbox_failed") and not relay.events("deliver_failed")


def test_the_look_back_goes_on_after_a_rotation(database, kafka, authority, client, make_relay, request):
    case = Case(database, kafka, make_relay, "secured_look_back")
    settings = with_certificate(kafka, client)
    case.options = settings
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "the committed message")
    install(authority.issue("client-3"), *client)
    relay.process.send(signal.SIGHUP)
    relay.wait_event("lookback_assigned", count=2)  # a member that is cut off before it leaves counts as one for 45 s
    kafka.cut()
    case.application.prepare("2")
    case.application.commit("2")
    wait_for(lambda: case.ids() == ["1", "2"], 60, "the second message")
    assert len(relay.wait_event("lookback_revoked")) == 1


def test_a_reload_reads_the_files_at_once(kafka, client, authority, make_relay, database):
    relay = make_relay(**with_certificate(kafka, client)).wait_ready()
    install(authority.issue("again"), *client)
    relay.process.send(signal.SIGHUP)
    relay.wait_event("kafka_files_changed", timeout=3)
    assert not relay.events("reload_incomplete")
