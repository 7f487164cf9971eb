"""Servers of Redis: Debian's, with the real RedisBloom if asked for; and for its protocol the fake one of
PyPI."""

import os
import platform

import pytest
import redis

from .process import Process, free_port, temporary_folder, wait_for


SLOTS = 16384  # of a cluster


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
            words += [f"--{name.replace('_', '-')}", *(value.split() if name == "replicaof" else [value])]
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

    def replicate(self):
        """Returns when its replica has all that was written. (WAIT heeds only what its own connection wrote.)"""
        written = self.client.info("replication")["master_repl_offset"]
        wait_for(lambda: self.client.info("replication").get("slave0", {}).get("offset", 0) >= written, 60,
                 "a replica that has everything")

    def kill(self):
        self.process.kill()

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()

    @property
    def url(self):
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}"


def cache_path(*names):
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "outbox-relay", *names)


def redisbloom():
    """The setting loadmodule with the real RedisBloom, which install.sh puts into the cache."""
    if platform.machine() != "x86_64":
        pytest.skip("the wheel with RedisBloom is for x86-64 only")
    path = cache_path("redisbloom-2.8.2", "redisbloom.so")
    assert os.path.exists(path), "RedisBloom is missing: run tests/support/install.sh redis"
    return {"loadmodule": path}


class FakeRedis(Redis):
    """fakeredis, which has the commands BF.*; install.sh puts it into the cache."""

    def arguments(self):
        python = cache_path("fakeredis-2.40.0", "bin", "python")
        program = ("import fakeredis; server = fakeredis.TcpFakeServer(('127.0.0.1', "
                   f"{self.port}), server_type='redis'); server.daemon_threads = True; "
                   "server.serve_forever()")
        return [python, "-c", program]


class Sentinel(Redis):
    """A Sentinel that watches a master; it finds the replicas and the other Sentinels by itself."""

    def __init__(self, master, name="shop", tls=None, **settings):
        super().__init__(tls=tls, **settings)
        del self.settings["save"], self.settings["appendonly"]
        if tls:
            self.settings["tls_replication"] = "yes"
        self.name = name
        self.file = os.path.join(self.folder, "sentinel.conf")
        with open(self.file, "w", encoding="utf-8") as file:
            file.write(f"sentinel monitor {name} 127.0.0.1 {master.port} 2\n"
                       f"sentinel down-after-milliseconds {name} 800\n"
                       f"sentinel failover-timeout {name} 3000\n")
            if "requirepass" in master.settings:
                file.write(f"sentinel auth-pass {name} {master.settings['requirepass']}\n")

    def arguments(self):
        program, *words = super().arguments()
        return [program, self.file, "--sentinel", *words]

    def ask(self, *words):
        return self.client.execute_command("SENTINEL", *words)

    def master_port(self):
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", self.name)[1])

    def is_ready(self):
        """Knows two other Sentinels, and a replica that follows the master."""
        master = self.client.sentinel_masters()[self.name]
        replicas = self.client.sentinel_slaves(self.name)
        return master["num-other-sentinels"] == 2 and any(
            replica["master-link-status"] == "ok" for replica in replicas)


class SentinelGroup:
    """A master, its replica and three Sentinels; a context manager. Failover takes about two seconds."""

    def __init__(self, tls=None, sentinel_settings=None, **settings):
        if tls:
            settings["tls_replication"] = "yes"
        if "requirepass" in settings:
            settings["masterauth"] = settings["requirepass"]
        self.master = Redis(tls=tls, **settings)
        self.replica = Redis(tls=tls, replicaof=f"127.0.0.1 {self.master.port}", **settings)
        self.sentinels = [Sentinel(self.master, tls=tls, **sentinel_settings or {}) for _ in range(3)]

    def __enter__(self):
        for server in (self.master, self.replica, *self.sentinels):
            server.start()
        for sentinel in self.sentinels:
            wait_for(sentinel.is_ready, 60, "a Sentinel that knows the others")
        return self

    def __exit__(self, *arguments):
        for server in (*self.sentinels, self.master, self.replica):
            server.__exit__(*arguments)

    def old_master_follows(self):
        try:
            return self.master.client.info("replication")["role"] == "slave"
        except redis.exceptions.ConnectionError:
            return False  # it closes its connections when it becomes a replica

    def names_replica(self):
        return all(sentinel.master_port() == self.replica.port for sentinel in self.sentinels)

    @property
    def url(self):
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis{'s' if self.master.tls else ''}+sentinel://{places}/shop"


def read_command(stream):
    """The words of the next command that a client of Redis sent; none: the end."""
    count = stream.readline()
    words = []
    for _ in range(int(count[1:] or 0)):
        words.append(stream.read(int(stream.readline()[1:])))
        stream.readline()
    return words


class RedisCluster:
    """Masters on loopback that share the slots, each with a replica if replicas; a context manager.
    Failover takes about two seconds."""

    def __init__(self, masters=3, replicas=False, tls=None, **settings):
        own = {"cluster_enabled": "yes", "cluster_node_timeout": 1000, **settings}
        if tls:
            own["tls_cluster"] = own["tls_replication"] = "yes"
        count = masters * (2 if replicas else 1)
        self.nodes = [Redis(tls=tls, cluster_port=free_port(), **own) for _ in range(count)]
        self.masters = self.nodes[:masters]
        self.replicas = self.nodes[masters:]

    def __enter__(self):
        for node in self.nodes:
            node.start()
        for number, node in enumerate(self.masters):
            first = SLOTS * number // len(self.masters)
            last = SLOTS * (number + 1) // len(self.masters) - 1
            node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
            node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            self.nodes[0].client.execute_command(
                "CLUSTER", "MEET", "127.0.0.1", node.port, node.settings["cluster_port"])
        wait_for(lambda: all(self.knows_all(node) for node in self.nodes), 60, "nodes that know each other")
        for master, replica in zip(self.masters, self.replicas):
            replica.client.execute_command("CLUSTER", "REPLICATE", self.id_of(master))
        wait_for(self.is_whole, 60, "a cluster that serves all slots")
        return self

    def __exit__(self, *arguments):
        for node in self.nodes:
            node.__exit__(*arguments)

    def knows_all(self, node):
        lines = node.client.execute_command("CLUSTER NODES")
        return len(lines) == len(self.nodes) if isinstance(lines, dict) else (
            len(lines.splitlines()) == len(self.nodes))

    def is_whole(self):
        def state(node):
            text = node.client.execute_command("CLUSTER INFO")
            return text["cluster_state"] if isinstance(text, dict) else dict(
                line.split(":") for line in text.decode().split())["cluster_state"]

        return all(state(node) == "ok" for node in self.nodes if node.process.running) and all(
            replica.client.info("replication")["master_link_status"] == "up"
            for replica in self.replicas if replica.process.running
            and replica.client.info("replication")["role"] == "slave")

    def id_of(self, node):
        return node.client.execute_command("CLUSTER", "MYID").decode()

    def owner(self, slot):
        """The master that serves the slot, as the living nodes say."""
        living = next(node for node in self.nodes if node.process.running)
        for first, last, master, *_ in living.client.execute_command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def view(self, node):
        """Of each master, as the node knows it: (id, epoch, its slots)."""
        lines = node.client.execute_command("CLUSTER", "NODES").decode().splitlines()
        words = [line.split() for line in lines]
        return sorted((word[0], word[6], *(slots for slots in word[8:] if slots[0] != "["))
                      for word in words if "master" in word[2])

    def nodes_agree(self):
        views = [self.view(node) for node in self.masters]
        return all(view == views[0] for view in views)

    def move_slot(self, slot, to, between=lambda: None):
        """Moves a slot with its keys, as redis-cli does; between() is called while it moves. A node that
        does not know the newest epoch of the others may take the slot back: so their views must agree."""
        source = self.owner(slot)
        to.client.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        source.client.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(to))
        between()
        while keys := source.client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.client.execute_command("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        for node in (to, source, *self.masters):
            node.client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", self.id_of(to))
        wait_for(self.nodes_agree, 60, f"nodes that agree on slot {slot}")
        assert self.owner(slot) is to

    @property
    def url(self):
        return self.masters[0].url + "".join(f",127.0.0.1:{node.port}" for node in self.masters[1:])

    def keys(self, pattern):
        """How many keys each master has."""
        return [len(node.client.keys(pattern)) for node in self.masters]
