"""A real Apache Kafka in KRaft mode: n nodes, each broker and controller, on loopback.

    with Kafka(nodes=3) as kafka:
        kafka.create_topic("orders", partitions=6)
        kafka.kill(kafka.leader("orders", 0)); ...; kafka.start_node(1)

The jars come from install.sh. With three nodes topics have replication factor 3 and
min.insync.replicas 2.

python3 -m support.kafka makes the JVM's archive of Kafka's classes, if it is not there: with it a
node starts in half the CPU time.
"""

import base64
import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import uuid

from confluent_kafka import KafkaException
from confluent_kafka.admin import (AdminClient, ConfigResource, ConfigSource, NewPartitions,
                                   NewTopic)

from .process import Process, Timeout, free_port, temporary_folder, wait_for
from .proxy import Proxy

VERSION = os.environ.get("TEST_KAFKA") or "3.9.1"  # install.sh has those that there are
IS_BEFORE_4 = VERSION.startswith("3.")
LOG4J = """\
log4j.rootLogger=WARN, out
log4j.logger.kafka.server.KafkaConfig=ERROR
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
""" if IS_BEFORE_4 else """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
logger.config.name=kafka.server.KafkaConfig
logger.config.level=ERROR
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
"""


def _home():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "outbox-relay", f"kafka-{VERSION}")


def class_path():
    libs = os.path.join(_home(), "libs")
    if not os.path.isdir(libs):
        raise RuntimeError(f"no Kafka in {libs}: run tests/support/install.sh kafka"
                           f" (TEST_KAFKA={VERSION})")
    return os.path.join(libs, "*")


@functools.cache
def class_archive():
    """Where the archive of this JVM is, or would be: another one cannot read it."""
    program = os.path.realpath(shutil.which("java") or "java")
    found = os.stat(os.path.join(os.path.dirname(program), "../lib/modules"))
    return os.path.join(_home(), f"classes-{found.st_size:x}-{int(found.st_mtime):x}.jsa")


def java(*arguments, heap="256m"):
    """The command line of a Java program that has Kafka on its class path."""
    archive = []
    if os.path.exists(class_archive()):
        archive = [f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:cds=off",
                   "-Xlog:cds+dynamic=off"]
    # The C1 compiler and the serial collector: the servers live for minutes, on two cores.
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData", *archive, "-cp", class_path(),
            *[str(argument) for argument in arguments]]


def make_class_archive():
    """Of what a node loads that runs, has a topic, and is asked to end."""
    if os.path.exists(class_archive()):
        return
    fresh = f"{class_archive()}.{os.getpid()}"
    with Kafka(options=(f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:disable")) as cluster:
        cluster.create_topic("t")
        cluster.stop_node(1)
    os.rename(fresh, class_archive())


def _id():
    """As Kafka writes them: 128 bits in base64, which must not look like an option."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


class Node:
    def __init__(self, number, folder, proxied):
        self.number = number
        self.folder = os.path.join(folder, f"node-{number}")
        self.properties = self.folder + ".properties"
        self.log = self.folder + ".log"
        self.port = free_port()
        self.controller_port = free_port()
        self.proxied_port = free_port() if proxied else None
        self.proxy = Proxy(self.proxied_port) if proxied else None
        self.process = None


class Kafka:
    def __init__(self, nodes=1, proxied=False, options=(), **properties):
        """
        properties: broker settings with underscores for dots (log_retention_ms=1000).
        proxied: a second listener, reached only through node.proxy (bootstrap_proxied).
        options: further ones of the nodes' JVMs.
        """
        self.options = list(options)
        self.folder = temporary_folder("kafka")
        self.replicas = min(nodes, 3)
        self.nodes = {number: Node(number, self.folder, proxied)
                      for number in range(1, nodes + 1)}
        self._admin_client = None
        with open(os.path.join(self.folder, "log4j.properties"), "w") as file:
            file.write(LOG4J)
        given = {name.replace("_", "."): value for name, value in properties.items()}
        for node in self.nodes.values():
            with open(node.properties, "w") as file:
                for name, value in {**self._settings(node), **given}.items():
                    file.write(f"{name}={value}\n")
        self._format()

    def _format(self):
        """Folders as Kafka's own tool makes them, but for their names."""
        original = self._formatted_folder()
        with open(os.path.join(original, "meta.properties")) as file:
            names = dict(line.rstrip("\n").split("=") for line in file if "=" in line)
        names["cluster.id"] = _id()
        for node in self.nodes.values():
            shutil.copytree(original, node.folder)
            own = {**names, "node.id": node.number, "directory.id": _id()}
            with open(os.path.join(node.folder, "meta.properties"), "w") as file:
                file.writelines(f"{name}={value}\n" for name, value in own.items())

    def _formatted_folder(self):
        """The tool is a program in Java, which costs a third of the start of a node; so it runs once, and what it
        made stays beside the jars."""
        made = os.path.join(_home(), "formatted")
        if not os.path.isdir(made):
            first = self.nodes[1]
            self.tool("kafka.tools.StorageTool", "format", "-t", _id(), "-c", first.properties)
            fresh = f"{made}.{os.getpid()}"
            shutil.copytree(first.folder, fresh)
            shutil.rmtree(first.folder)
            try:
                os.rename(fresh, made)
            except OSError:  # another process was first
                shutil.rmtree(fresh)
        return made

    def _settings(self, node):
        listeners = {"PLAINTEXT": node.port, "CONTROLLER": node.controller_port}
        advertised = {"PLAINTEXT": node.port}
        if node.proxy:
            listeners["PROXIED"] = node.proxied_port
            advertised["PROXIED"] = node.proxy.port

        def urls(ports):
            return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())

        in_sync = max(1, self.replicas - 1)
        return {
            "process.roles": "broker,controller",
            "node.id": node.number,
            "controller.quorum.voters": ",".join(
                f"{other.number}@127.0.0.1:{other.controller_port}"
                for other in self.nodes.values()),
            "listeners": urls(listeners),
            "advertised.listeners": urls(advertised),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            "log.dirs": node.folder,
            "default.replication.factor": self.replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": self.replicas,
            "transaction.state.log.replication.factor": self.replicas,
            "transaction.state.log.min.isr": in_sync,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.num.partitions": 4,
            "group.initial.rebalance.delay.ms": 0,
            # How often it looks for transactions whose time is over.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            # A member that was killed holds its partitions until its session is over.
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": "false",
            # A node that was killed may register again only when its session has run out.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            # Nodes that wait would write an empty record to their log twice a second.
            "metadata.max.idle.interval.ms": 5000,
            "num.network.threads": 2,
            "num.io.threads": 2,
        }

    @property
    def bootstrap(self):
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def bootstrap_proxied(self):
        return ",".join(f"127.0.0.1:{node.proxy.port}" for node in self.nodes.values())

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Returns when every node is known as an alive broker."""
        for number in self.nodes:
            self._launch(number)
        self._wait_alive(self.nodes)
        return self

    def stop(self):
        """Ends the whole cluster. At once: its files go with it."""
        for node in self.nodes.values():
            if node.process and node.process.running:
                node.process.kill()
            if node.proxy:
                node.proxy.close()

    def start_node(self, number):
        self.start_nodes([number])

    def start_nodes(self, numbers):
        for number in numbers:
            self._launch(number)
        self._wait_alive(numbers)

    def stop_node(self, number):
        """A clean shutdown: leadership is handed over first."""
        self.nodes[number].process.stop(timeout=60)

    def ask_nodes(self, numbers, timeout=6):
        """SIGTERM for all at once. Without a quorum the last ones wait for ever: they go on."""
        processes = [self.nodes[number].process for number in numbers]
        for process in processes:
            process.send(signal.SIGTERM)
        with contextlib.suppress(Timeout):
            wait_for(lambda: not any(process.running for process in processes), timeout)

    def kill(self, number=1):
        self.nodes[number].process.kill()

    def pause(self, number=1):
        self.nodes[number].process.pause()

    def resume(self, number=1):
        self.nodes[number].process.resume()

    def _logging(self):
        name = "log4j.configuration" if IS_BEFORE_4 else "log4j2.configurationFile"
        return f"-D{name}=file:{self.folder}/log4j.properties"

    def _launch(self, number):
        node = self.nodes[number]
        command = java(*self.options, self._logging(), "kafka.Kafka", node.properties, heap="512m")
        node.process = Process(command, node.log, folder=self.folder)

    def _wait_alive(self, numbers):
        def alive():
            for number in numbers:
                process = self.nodes[number].process
                if not process.running:
                    raise AssertionError(f"Kafka ended at start:\n{process.tail()}")
            try:
                brokers = self._admin().list_topics(timeout=2).brokers
            except KafkaException:
                return False
            return all(number in brokers for number in numbers)

        wait_for(alive, 180, f"Kafka's nodes {sorted(numbers)}")

    def _admin(self):
        # reconnect.backoff: librdkafka's default waits up to 10 s for a node that came back.
        self._admin_client = self._admin_client or AdminClient(
            {"bootstrap.servers": self.bootstrap, "reconnect.backoff.max.ms": 200,
             "log_level": 0})
        return self._admin_client

    def create_topic(self, name, partitions=6, replicas=None, **config):
        """config with underscores for dots; returns when every partition has a leader."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, replicas or self.replicas, config=settings)
        _results(self._admin().create_topics([topic], operation_timeout=30))
        self._wait_led(name, partitions)
        return name

    def create_topics(self, names, partitions, a_time=200):
        """Many at once; returns when the broker lists them."""
        for at in range(0, len(names), a_time):
            _results(self._admin().create_topics(
                [NewTopic(name, partitions, self.replicas) for name in names[at:at + a_time]],
                operation_timeout=120))
        wait_for(lambda: set(names) <= set(self._admin().list_topics(timeout=30).topics), 120,
                 f"{len(names)} topics")
        return names

    def delete_topics(self, names, a_time=200):
        for at in range(0, len(names), a_time):
            _results(self._admin().delete_topics(names[at:at + a_time], operation_timeout=120))

    def delete_topic(self, name):
        _results(self._admin().delete_topics([name], operation_timeout=30))

        def gone():
            try:
                return name not in self._admin().list_topics(timeout=10).topics
            except KafkaException:
                return False

        wait_for(gone, 60, f"the end of topic {name}")

    def add_partitions(self, name, total):
        _results(self._admin().create_partitions([NewPartitions(name, total)],
                                                 operation_timeout=30))
        self._wait_led(name, total)

    def alter_topic(self, name, **config):
        """Sets what is given and keeps the topic's other settings."""
        changed = {key.replace("_", "."): str(value) for key, value in config.items()}
        dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        kept = {entry.name: entry.value for entry in self._describe(name).values()
                if entry.source == dynamic}
        resource = ConfigResource(ConfigResource.Type.TOPIC, name,
                                  set_config={**kept, **changed})
        _results(self._admin().alter_configs([resource]))
        wait_for(lambda: changed.items() <= self.topic_config(name).items(), 30,
                 f"the new configuration of {name}")

    def topic_config(self, name):
        return {entry.name: entry.value for entry in self._describe(name).values()}

    def delete_records(self, ends):
        """Those before {(topic, partition): offset}, as retention does."""
        path = os.path.join(self.folder, "delete-records.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"version": 1, "partitions": [
                {"topic": topic, "partition": partition, "offset": offset}
                for (topic, partition), offset in ends.items()]}, file)
        self.tool("org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server", self.bootstrap,
                  "--offset-json-file", path)

    def leader(self, topic, partition):
        """The node that leads the partition, -1 when there is none."""
        return self._partition(topic, partition).leader

    def in_sync(self, topic, partition):
        return set(self._partition(topic, partition).isrs)

    def tool(self, main_class, *arguments, timeout=120):
        """Runs one of Kafka's own Java programs and returns what it printed."""
        done = subprocess.run(
            java(self._logging(), main_class, *arguments),
            capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise RuntimeError(f"{main_class} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def console_consumer(self, topic, count, *properties):
        """Lines of Kafka's own console consumer, one a record, with all that it can print.

        properties: further --property arguments, as print.offset=true.
        """
        shown = ("print.timestamp=true", "print.partition=true", "print.headers=true",
                 "print.key=true", "key.separator=|", *properties)
        arguments = [word for item in shown for word in ("--property", item)]
        return self.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server",
            self.bootstrap, "--topic", topic, "--from-beginning", "--max-messages", count,
            "--timeout-ms", 30000, *arguments).splitlines()

    def _describe(self, topic):
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return _results(self._admin().describe_configs([resource]))[0]

    def _partitions(self, topic):
        try:
            return self._admin().list_topics(topic, timeout=10).topics[topic].partitions
        except KafkaException:  # the node that was asked has just gone, or is slow
            return {}

    def _partition(self, topic, partition):
        """Each request may reach another node, and one may not have heard of the topic yet."""
        return wait_for(lambda: self._partitions(topic).get(partition), 60,
                        f"partition {partition} of {topic}")

    def _wait_led(self, topic, partitions):
        """As every running node sees it: a client may ask any of them."""
        def led(client):
            try:
                found = client.list_topics(topic, timeout=10).topics[topic].partitions
            except KafkaException:
                return False
            return len(found) == partitions and all(p.leader >= 0 for p in found.values())

        for node in self.nodes.values():
            if node.process.running:
                # A new client asks the one node that it was given.
                client = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.port}",
                                      "log_level": 0})
                wait_for(lambda: led(client), 60, f"leaders for {topic} at node {node.number}")


def _results(futures):
    return [future.result(timeout=60) for future in futures.values()]


if __name__ == "__main__":
    make_class_archive()
