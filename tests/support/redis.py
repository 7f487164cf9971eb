"""Servers of Redis: Debian's, and for the protocol of RedisBloom the fake one of PyPI."""

import os

import redis

from .process import Process, free_port, temporary_folder, wait_for


class Redis:
    """A redis-server on a free port of loopback; a context manager. settings: of its configuration,
    with _ for -; it keeps nothing on its disk unless they say so. tls: an Authority: its port speaks TLS
    alone, and wants a certificate of the client."""

    def __init__(self, tls=None, **settings):
        self.folder = temporary_folder("redis")
        self.data = os.path.join(self.folder, "data")
        os.mkdir(self.data)
        self.port = free_port()
        # Debian's redis-tools has the server under another name, and starts none of its own.
        self.program = os.path.join(self.folder, "redis-server")
        os.symlink("/usr/bin/redis-check-rdb", self.program)
        self.settings = {"save": "", "appendonly": "no", **settings}
        self.process = None
        self.use_authority(tls)

    def use_authority(self, tls):
        """The next start uses its certificates; the client of the test does at once."""
        self.tls = tls
        own = {}
        if tls:
            certificate, key = tls.issue("redis")
            self.settings |= {"tls_cert_file": certificate, "tls_key_file": key,
                              "tls_ca_cert_file": tls.certificate}
            certificate, key = tls.issue("test")
            own = {"ssl": True, "ssl_ca_certs": tls.certificate, "ssl_certfile": certificate,
                   "ssl_keyfile": key, "host": "127.0.0.1"}
        self.client = redis.Redis(port=self.port, password=self.settings.get("requirepass"), **own)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process and self.process.running:
            self.process.resume()
            self.process.kill()

    def arguments(self):
        ports = ["--port", 0, "--tls-port", self.port] if self.tls else ["--port", self.port]
        words = [self.program, *ports, "--bind", "127.0.0.1", "--dir", self.data]
        for name, value in self.settings.items():
            words += [f"--{name.replace('_', '-')}", value]
        return words

    def start(self):
        self.process = Process(self.arguments(), os.path.join(self.folder, "log"),
                               folder=self.folder)
        wait_for(self._answers, 30, "the answer of Redis")
        return self

    def _answers(self):
        if not self.process.running:
            raise AssertionError(f"Redis ended at start:\n{self.process.tail()}")
        try:
            return self.client.ping()
        except redis.exceptions.AuthenticationError:
            return True
        except redis.exceptions.ConnectionError:
            return False

    def kill(self):
        self.process.kill()

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()

    @property
    def url(self):
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"


class FakeRedis(Redis):
    """fakeredis, which has the commands BF.*; install.sh puts it into the cache."""

    def arguments(self):
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        python = os.path.join(home, "outbox-relay", "fakeredis-2.40.0", "bin", "python")
        program = ("import fakeredis; server = fakeredis.TcpFakeServer(('127.0.0.1', "
                   f"{self.port}), server_type='redis'); server.daemon_threads = True; "
                   "server.serve_forever()")
        return [python, "-c", program]
