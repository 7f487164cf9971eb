"""RabbitMQ, Debian's, on free ports of loopback."""

import os
import subprocess

import pika
import pytest

from .process import Process, free_port, port_answers, temporary_folder, wait_for

SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in sbin wants to be the user rabbitmq
CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"


class RabbitMQ:
    """A node with an epmd of its own, which ends with it; a context manager."""

    def __init__(self):
        self.folder = temporary_folder("rabbitmq")
        self.port, self.epmd_port = free_port(), free_port()
        self.environment = {
            "PATH": "/usr/bin:/bin", "HOME": self.folder,  # its cookie is there
            "detached": "yes",  # no shell between us and Erlang
            "ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS":
                "-kernel inet_dist_use_interface {127,0,0,1} -start_epmd false +S 1:1",
            "RABBITMQ_CONF_ENV_FILE": os.devnull, "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": os.path.join(self.folder, "no-configuration"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(self.folder, "no-plugins"),
            "RABBITMQ_MNESIA_BASE": os.path.join(self.folder, "data"),
            "RABBITMQ_LOG_BASE": os.path.join(self.folder, "log"),
            "RABBITMQ_PID_FILE": os.path.join(self.folder, "pid")}
        self.epmd = self.process = None

    def __enter__(self):
        if not os.path.exists(SERVER):
            pytest.skip("RabbitMQ is missing: run tests/support/install.sh rabbitmq")
        # Without ours, Erlang would start one that outlives it and that others may use by then.
        self.epmd = Process(["epmd", "-address", "127.0.0.1", "-port", self.epmd_port],
                            os.path.join(self.folder, "epmd.log"))
        wait_for(lambda: port_answers(self.epmd_port), 30, "the answer of epmd")
        return self.start()

    def __exit__(self, *_):
        for process in (self.process, self.epmd):
            if process and process.running:
                process.kill()

    def start(self):
        self.process = Process([SERVER], os.path.join(self.folder, "server.log"),
                               environment=self.environment, folder=self.folder)
        wait_for(self._answers, 120, "the answer of RabbitMQ", interval=0.1)
        return self

    def kill(self):
        self.process.kill()

    def _answers(self):
        if not self.process.running:
            raise AssertionError(f"RabbitMQ ended at start:\n{self.process.tail()}")
        if not port_answers(self.port):
            return False
        try:
            self.connect().close()
        except pika.exceptions.AMQPConnectionError:
            return False
        return True

    @property
    def url(self):
        return f"amqp://guest:guest@127.0.0.1:{self.port}"

    def connect(self, url=None):
        return pika.BlockingConnection(pika.URLParameters(url or self.url))

    def add_user(self, name):
        """Returns the URL of the user."""
        for words in (["add_user", name, name], ["set_permissions", name, ".*", ".*", ".*"]):
            subprocess.run([CONTROL, "-n", self.environment["RABBITMQ_NODENAME"], *words],
                           env=self.environment, stdout=subprocess.DEVNULL, check=True, timeout=60)
        return self.url.replace("guest:guest", f"{name}:{name}")

    def publish(self, queue, messages, url=None, **properties):
        """(id or None, body) each; returns when the broker has all of them on its disk."""
        connection = self.connect(url)
        channel = connection.channel()
        channel.confirm_delivery()
        for id, body in messages:
            channel.basic_publish("", queue, body, mandatory=True,
                                  properties=pika.BasicProperties(message_id=id, delivery_mode=2, **properties))
        connection.close()

    def delete(self, queue):
        connection = self.connect()
        connection.channel().queue_delete(queue)
        connection.close()

    def count(self, queue):
        """Its messages that nobody has; None: there is no such queue."""
        connection = self.connect()
        try:
            return connection.channel().queue_declare(queue, passive=True).method.message_count
        except pika.exceptions.ChannelClosedByBroker:
            return None
        finally:
            connection.close()

    def take_all(self, queue):
        """(id, body) of each message of the queue, which is empty then."""
        connection = self.connect()
        channel, taken = connection.channel(), []
        while (got := channel.basic_get(queue, auto_ack=True))[0]:
            taken.append((got[1].message_id, got[2]))
        connection.close()
        return taken
