"""`check-config` refuses what `run` refuses for the configuration alone, and what fails at the first request.

The table follows the start of the relay (daemon.c): the file, librdkafka, the listeners, the databases, the
look-back, the sections that deliver."""

import os
import pathlib
import re

import pytest

from support.certificates import Authority
from support.relay import run_command

KAFKA = "[kafka]\nbootstrap.servers = 127.0.0.1:1\n"
PUBLISHER = KAFKA + "[postgres]\ndsn = postgres://u@127.0.0.1:1/x?connect_timeout=1\n[publisher \"main\"]\n"
DELIVER = KAFKA + "[deliver \"billing\"]\nurl = http://127.0.0.1:1/\nnetworks = 127.0.0.0/8\n"
URL = KAFKA + "[deliver \"billing\"]\nurl = "
LOOKBACK = PUBLISHER + "[lookback \"shop\"]\ncheck = shop\n[check \"shop\"]\n"
CHECK = LOOKBACK + "url = http://127.0.0.1:1/\nnetworks = 127.0.0.1\n"
SQL = LOOKBACK + "transport = sql\n"
API = "[token \"x\"]\nroles = read\ntokens = 0123456789abcdef0123456789abcdef\n[api]\n"

# What `run` refuses too, before it needs a server: (configuration, words of the error).
REFUSED = {
    "unknown key": (PUBLISHER + "shard = 1\n", "shard"),
    "no brokers": ("[kafka]\n" + PUBLISHER[len(KAFKA):], "bootstrap.servers is missing"),
    "unknown property": (KAFKA + "no.such = 1\n" + PUBLISHER[len(KAFKA):], "no.such: librdkafka knows no such property"),
    "a misspelt property": ("[kafka]\nbootstrap.server = 127.0.0.1:1\n" + PUBLISHER[len(KAFKA):],
                            "did you mean bootstrap.servers?"),
    "a key of another section": (PUBLISHER + "retain = 1d\n", "retain: unknown key; it is a key of [postgres]"),
    "the new protocol of groups": (KAFKA + "group.protocol = consumer\n" + PUBLISHER[len(KAFKA):],
                                   "group.protocol = consumer: "),
    "its assignor": (KAFKA + "group.remote.assignor = uniform\n" + PUBLISHER[len(KAFKA):], "group.remote.assignor"),
    "values of a producer that exclude each other": (
        KAFKA + "batch.size = 1\nmessage.max.bytes = 1000\nlinger.ms = 900001\n" + PUBLISHER[len(KAFKA):], "linger.ms"),
    "values of a consumer that exclude each other": (
        KAFKA + "session.timeout.ms = 60000\nmax.poll.interval.ms = 30000\n" + PUBLISHER[len(KAFKA):],
        "max.poll.interval.ms"),
    "fetches below a record": (KAFKA + "fetch.max.bytes = 1000\n" + PUBLISHER[len(KAFKA):], "fetch.max.bytes"),
    "an unknown assignor": (KAFKA + "partition.assignment.strategy = none\n" + PUBLISHER[len(KAFKA):],
                            "partition.assignment.strategy"),
    "a certificate that is missing": (
        KAFKA + "security.protocol = ssl\nssl.ca.location = /none\n" + PUBLISHER[len(KAFKA):], "ssl.ca.location"),
    "no dsn": (PUBLISHER.replace("dsn = postgres://u@127.0.0.1:1/x?connect_timeout=1", "dsn = host"), "postgres main"),
    "a password with @": (PUBLISHER.replace("u@", "u:p@ss@"), "more than one @"),
    "an address with too large a number": (PUBLISHER + "[admin]\nremote = yes\nlisten = 300.0.0.1:9187\n",
                                           "300.0.0.1:9187 is not an address"),
    "an address in brackets": (PUBLISHER + API + "remote = yes\nlisten = [zz]:9187\n", "[zz]:9187 is not an address"),
    "two listeners on one port": (PUBLISHER + "[admin]\nlisten = 127.0.0.1:9187\n" + API + "listen = 9187\n",
                                  "choose another port"),
    "two listeners, one of them everywhere": (
        PUBLISHER + "[admin]\nremote = yes\nlisten = 0.0.0.0:9187\n" + API + "listen = 9187\n", "choose another port"),
    "no URL": (KAFKA + "[deliver \"billing\"]\n", "url: it is empty"),
    "a URL that is none": (URL + "http://a b/\n", "url: "),
    "a network that is none": (DELIVER.replace("/8", "/99"), "networks: "),
    "a secret that is none": (DELIVER + "secret = whsec_\n", "secret: "),
    "an old secret alone": (DELIVER + "old_secret = whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", "old_secret: "),
    "a CA that is missing": (DELIVER + "tls_ca = /none\n", "tls_ca: /none cannot be read"),
    "a key without its certificate": (DELIVER + "tls_key = /etc/hostname\n", "tls_key: "),
    "an id that is none": (DELIVER + "id = nothing:x\n", "id: "),
    "a source that is none": (DELIVER + "event_source = a b\n", "event_source: "),
    "a dedup that is none": (DELIVER + "dedup = none\n", "dedup: "),
    "claims that are none": (DELIVER + "claims = none\n", "claims: "),
    "claims without a name": (DELIVER + "claims = redis url=redis://127.0.0.1\n", "claims: name is missing"),
    "a dedup with a path": (DELIVER + "dedup = exact ids=1000 path=/tmp/x\n", "dedup: leave path= out"),
    "a dedup without a folder": (DELIVER + "dedup = exact ids=1000\n", "path: it is empty"),
    "reports to what is no database": (DELIVER + "report = redis url=redis://127.0.0.1\n",
                                       'billing"] report: \'redis\' is no database; begin the line with one of: postgres'),
    "reports with a setting that is none": (DELIVER + "report = postgres name=a\n", "report: 'name' is no setting"),
    "reports with a dsn that is none": (DELIVER + "report = postgres dsn=postgresql://a:b@[/x\n", "report: dsn: "),
    "a folder above that is missing": (DELIVER + "dedup = exact ids=1000\npath = /none/state\n",
                                       "path: /none does not exist"),
    "a rule that is none": (DELIVER + "path = /tmp/state\nrules = none\n", "rules: "),
    "a topic twice": (DELIVER + "topics = a, b, a\n", "topic a is listed twice"),
    "too many retry topics": (DELIVER + "retry_topics = " + ", ".join(f"r{i}=1s" for i in range(17)) + "\n",
                              "retry_topics: 17 of them"),
    "a batch above concurrency": (DELIVER + "form = batch\nbatch = 20\nconcurrency = 10\n", "batch"),
    "an answer that cannot fit": (DELIVER + "form = batch\nbatch = 200\nmax_answer = 1KiB\n", "batch"),
}

# What `run` starts with, and what fails at the first request.
FAILS_LATER = {
    "a private address": (URL + "http://10.0.0.5/\n", 'billing"] url: its address 10.0.0.5 is refused, since it is '
                          "no public one: private; add to the section: networks = 10.0.0.5"),
    "one beside others": (URL + "http://10.0.0.5:8080/x\nnetworks = 10.1.0.0/16\n",
                          "add to the section: networks = 10.1.0.0/16, 10.0.0.5"),
    "an address of IPv6": (URL + "http://[fd12::7]:80/\n", "add to the section: networks = fd12::7"),
    "localhost": (URL + "http://localhost:8080/\n", "add to the section: networks = 127.0.0.1"),
    "a private address of a service": (LOOKBACK + "url = https://192.168.1.9/check\n",
                                       '[check "shop"] url: its address 192.168.1.9 is refused'),
    "one of grpc": (LOOKBACK + "transport = grpc\nurl = http://10.0.0.5:50051\n", "networks = 10.0.0.5"),
    "one that messages bring": (LOOKBACK + "allow = https://pay.example.com/, http://10.0.0.5:8080/\n",
                                '[check "shop"] allow: its address 10.0.0.5 is refused'),
    "a list that is none": (CHECK + "allow = pay\n", "allow: "),
    "no service": (LOOKBACK, "url: it is empty, and so is allow"),
    "a URL of a service": (LOOKBACK + "url = ftp://a/\n", "url: "),
    "a dsn for http": (CHECK + "dsn = host=a\n", "dsn: only transport = sql"),
    "no database": (SQL, "dsn: it is empty"),
    "a database's URL": (SQL + "dsn = host=a\nurl = http://a/\n", "url: transport = sql asks the database of dsn"),
    "a dsn of a service": (SQL + "dsn = host\n", "dsn: "),
    "a function that is none": (SQL + "dsn = host=a\nfunction = a.b.c\n", "function: "),
    "the dsn of claims": (DELIVER + 'claims = postgres name=a dsn="host"\n', "claims: "),
    "the dsn of dedup": (DELIVER + 'dedup = postgres name=a dsn="host"\n', "dedup: "),
}

GOOD = {
    "a publisher": PUBLISHER,
    "a section that delivers": DELIVER,
    "a service": CHECK,
    "a public address": URL + "http://8.8.8.8/\n",
    "a name": URL + "http://app.internal/\n",
    "a network": URL + "http://10.0.0.5/\nnetworks = 10.0.0.0/8\n",
    "two ports": PUBLISHER + "[admin]\nlisten = 127.0.0.1:9187\n" + API + "listen = 9188\n",
    "a consumer's properties": KAFKA + "session.timeout.ms = 20000\n" + PUBLISHER[len(KAFKA):],
}


def asked(command, tmp_path, text):
    path = tmp_path / "relay.ini"
    path.write_text(text)
    os.chmod(path, 0o600)
    return run_command([command, "--config", path], {}, timeout=60)


@pytest.mark.parametrize("name", REFUSED)
def test_what_run_refuses_is_refused(tmp_path, name):
    text, words = REFUSED[name]
    for command in ("check-config", "run"):
        status, output, error = asked(command, tmp_path, text)
        assert status == 78 and words in error, f"{command}: {status} {output} {error}"


@pytest.mark.parametrize("name", FAILS_LATER)
def test_what_fails_later_is_refused(tmp_path, name):
    text, words = FAILS_LATER[name]
    status, output, error = asked("check-config", tmp_path, text)
    assert status == 78 and words in error, f"{status} {output} {error}"


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_passes(tmp_path, name):
    status, output, error = asked("check-config", tmp_path, GOOD[name])
    assert (status, error) == (0, "") and "no error" in output


PAGES = [pathlib.Path(__file__).parents[2] / "docs/guide" / name for name in ("deploy/managed-clouds.md", "secure.md")]
BLOCKS = [(page.name, block) for page in PAGES
          for block in re.findall(r"^```ini\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL) if "[kafka]" in block]


@pytest.mark.parametrize("page, block", BLOCKS, ids=[f"{page}-{number}" for number, (page, _) in enumerate(BLOCKS)])
def test_configurations_of_the_guide(page, block, tmp_path):
    """Those with a [kafka] section; the files that they name are there."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("client")
    contents = {"ca.pem": authority.certificate, "client.pem": certificate, "client.key": key,
                "service.cert": certificate, "service.key": key}
    folder = tmp_path / "etc"
    folder.mkdir()
    for name in set(re.findall(r"/etc/outbox-relay/([\w.-]+)", block)):
        target = folder / name
        target.write_text(pathlib.Path(contents[name]).read_text() if name in contents else "secret")
        target.chmod(0o600)
    path = folder / "relay.ini"
    path.write_text(block.replace("/etc/outbox-relay", str(folder)))
    path.chmod(0o600)
    assert run_command(["check-config", "--config", path])[::2] == (0, "")
