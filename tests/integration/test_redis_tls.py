"""The stores on a Redis server that speaks TLS: certificates of an own authority, of the client, and
files that change while a store is open. Whatever fails, no id is new."""

import os
import pty
import select
import shutil
import signal
import subprocess

import pytest

from support.certificates import Authority
from support.dedup import Claims, Dedup, refused
from support.redis import Redis
from support.relay import beside


@pytest.fixture(scope="module")
def shared(authority):
    with Redis(tls=authority) as server:
        yield server


@pytest.fixture
def server(shared):
    shared.client.flushall()
    return shared


@pytest.fixture
def files(authority, tmp_path):
    """Where a deployment keeps its files: they can be replaced."""
    return install_files(authority, tmp_path)


def install_files(authority, folder):
    certificate, key = authority.issue("client")
    for source, name in ((authority.certificate, "ca.pem"), (certificate, "client.pem"), (key, "client.key")):
        shutil.copy(source, folder / f"{name}.new")
        os.rename(folder / f"{name}.new", folder / name)
    return folder


def words(server, files, **settings):
    given = {"name": "billing", "url": server.url, "tls_ca": files / "ca.pem",
             "tls_certificate": files / "client.pem", "tls_key": files / "client.key", **settings}
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None)


def test_ids_and_claims_over_tls(server, files):
    with Dedup(f"redis {words(server, files)}") as store:
        ids = [f"id-{i}" for i in range(2000)]
        assert store.check(*ids) == ["new"] * 2000
        assert store.done(*ids) == "ok"
        assert store.check(*ids) == ["done"] * 2000
    with Claims(f"redis {words(server, files)}") as claims:
        assert claims.take("id-1")
    assert server.client.get("billing:id:id-1") is not None


def test_a_host_name_is_compared_with_the_certificate(server, files, authority):
    with Dedup(f"redis {words(server, files, url=f'rediss://localhost:{server.port}')}") as store:
        assert store.check("a") == ["new"]
    with Redis(tls=authority) as elsewhere:
        certificate, key = authority.issue("elsewhere", "DNS:redis.example")
        elsewhere.client.execute_command(
            "CONFIG", "SET", "tls-cert-file", certificate, "tls-key-file", key)
        with refused("retry", "IP address mismatch", "for this host"):
            Dedup(f"redis {words(elsewhere, files)}")


def test_a_server_of_another_authority_is_refused(server, files, tmp_path_factory):
    other = Authority(tmp_path_factory.mktemp("other"))
    with refused("retry", "no TLS session", "tls_ca"):
        Dedup(f"redis {words(server, files, tls_ca=other.certificate)}")
    with refused("retry", "no TLS session", "tls_ca"):
        Dedup(f"redis {words(server, files, tls_ca=None)}")


def test_a_client_without_a_certificate_is_refused(server, files):
    with refused("retry", "client's certificate (tls_certificate)"):
        Dedup(f"redis {words(server, files, tls_certificate=None, tls_key=None)}")


def test_tls_and_plain_text_do_not_mix(server, files):
    with Redis() as plain, refused("retry", "no TLS session", "does this port speak TLS"):
        Dedup(f"redis {words(server, files, url=f'rediss://127.0.0.1:{plain.port}')}")
    with refused("retry", "does the server run"):
        Dedup(f"redis name=billing url=redis://127.0.0.1:{server.port}")


@pytest.mark.parametrize("settings, kind, said", [
    # a file may be exchanged at this moment
    ({"tls_ca": "/nowhere.pem"}, "retry", ("tls_ca", "/nowhere.pem", "No such file")),
    ({"tls_key": "{ca}"}, "retry", ("tls_key", "cannot be used")),
    ({"tls_key": None}, "config", ("tls_key is missing",)),
    ({"tls_certificate": None}, "config", ("tls_certificate is missing",)),
    ({"url": "redis://127.0.0.1:1"}, "config", ("rediss://",)),
    ({"url": "rediss://:a@127.0.0.1:1", "password_file": "/nowhere"}, "config",
     ("password_file", "leave out one"))])
def test_files_that_cannot_be_used_are_named(server, files, settings, kind, said):
    given = {name: value and value.format(ca=files / "ca.pem") for name, value in settings.items()}
    with refused(kind, *said):
        Dedup(f"redis {words(server, files, **given)}")


def test_certificates_rotate_without_a_restart(authority, files, tmp_path_factory):
    with Redis(tls=authority, appendonly="yes", appendfsync="always") as server:
        with Dedup(f"redis {words(server, files)}") as store:
            assert store.check("a") == ["new"] and store.done("a") == "ok"
            server.kill()
            server.use_authority(Authority(tmp_path_factory.mktemp("next")))
            server.start()
            with refused("retry", "no TLS session"):
                store.check("a", "b")
            install_files(server.tls, files)
            assert store.check("a", "b") == ["done", "new"]


def test_a_certificate_that_is_replaced_before_its_key_is_retried(authority, files):
    with Redis(tls=authority, appendonly="yes", appendfsync="always") as server:
        with Dedup(f"redis {words(server, files)}") as store:
            assert store.check("a") == ["new"] and store.done("a") == "ok"
            certificate, key = authority.issue("client")
            shutil.copy(certificate, files / "client.pem")
            server.client.client_kill_filter(skipme=True, _type="normal")
            with refused("retry", "client.key"):
                store.check("a", "b")
            shutil.copy(key, files / "client.key")
            assert store.check("a", "b") == ["done", "new"]


def test_a_key_with_a_passphrase_is_refused_and_asks_nobody(server, files):
    subprocess.run(["openssl", "ec", "-in", files / "client.key", "-out", files / "locked.key",
                    "-aes256", "-passout", "pass:secret"], check=True, capture_output=True)
    program = beside("tests/unit/dedup_driver")
    line = f"redis {words(server, files, tls_key=files / 'locked.key')}"
    child, terminal = pty.fork()
    if child == 0:
        os.execv(program, [program, line])
    try:
        readable, _, _ = select.select([terminal], [], [], 20)
        said = os.read(terminal, 10000).decode() if readable else "nothing"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    assert said.startswith("error retry") and "locked.key cannot be used" in said


def test_a_password_rotates_without_a_restart(server, files):
    password = files / "password"
    password.write_text("first\n")
    server.client.execute_command("ACL", "SETUSER", "biller", "reset", "on", ">first", "~billing:*", "+@all")
    url = f"rediss://biller:@127.0.0.1:{server.port}"
    with Dedup(f"redis {words(server, files, url=url, password_file=password)}") as store:
        assert store.check("a") == ["new"] and store.done("a") == "ok"
        server.client.execute_command("ACL", "SETUSER", "biller", ">second", "<first")
        server.client.client_kill_filter(skipme=True, _type="normal")
        with refused("denied", "correct user and password"):
            store.check("a", "b")
        password.write_text("second\n")
        assert store.check("a", "b") == ["done", "new"]
        os.remove(password)
        server.client.client_kill_filter(skipme=True, _type="normal")
        with refused("retry", str(password), "cannot be read"):
            store.check("c")
