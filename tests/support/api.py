"""The look-back's HTTP interface, as an application uses it.

    api = Api(port, token="of-an-application")
    api.post("prepare", {"version": 1, "biz_type": "orders", …}).status
"""

import contextlib
import http.client
import json
from dataclasses import dataclass

from support import openapi
from support.process import free_port
from support.relay import Relay, run_command

CONFIG = """\
[lookback "orders"]
types = orders, returns
topic = {topic}
topics = orders.*
check = shop
[lookback "stock"]
topic = {topic}
default = yes
[check "shop"]
url = http://127.0.0.1:9/lookback
allow = https://shop.example.com/lookback
[check "bank"]
types = bank
"""
SEND, READ, OPERATE = "token-of-a-sender", "token-of-a-reader", "token-of-an-operator"


def caller(name, token, roles, **scope):
    """A [token] section."""
    keys = {"tokens": token, "roles": roles, **scope}
    return f'[token "{name}"]\n' + "".join(f"{key} = {value}\n" for key, value in keys.items())


SENDER = caller("shop", SEND, "send", types="*")
READER = caller("watcher", READ, "read")
OPERATOR = caller("alice", OPERATE, "read, operate, decide")
CALLERS = SENDER + READER + OPERATOR


TYPE = "urn:outbox-relay:problem:"


def code_of(problem):
    """The last part of a problem's type; None: the message of a batch was acknowledged."""
    return problem["type"].removeprefix(TYPE) if "type" in problem else None


@dataclass
class Answer:
    status: int
    headers: dict
    text: str

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def code(self):
        """Of a refused request, whose answer is a problem document."""
        problem = self.json
        assert self.headers["Content-Type"] == "application/problem+json", self
        assert problem["status"] == self.status and len(problem["title"]) > 10 and len(problem["detail"]) > 10, self
        assert problem["instance"] == f"urn:outbox-relay:request:{self.headers['X-Request-Id']}", self
        return code_of(problem)


class Api:
    def __init__(self, port, token=None, tls=None):
        """tls: an ssl.SSLContext, if the interface speaks TLS."""
        self.port = port
        self.token = token
        self.tls = tls

    def as_(self, token):
        return Api(self.port, token, self.tls)

    def connect(self, timeout=60):
        where = "127.0.0.1", self.port
        return contextlib.closing(http.client.HTTPSConnection(*where, timeout=timeout, context=self.tls) if self.tls
                                  else http.client.HTTPConnection(*where, timeout=timeout))

    def request(self, method, path, body=None, headers=None, connection=None):
        """body: bytes or an iterable of bytes (which is chunked), or what becomes JSON."""
        if body is not None and not isinstance(body, (bytes, map)):
            body = json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if body is not None else {}
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        sent.update(headers or {})
        if connection:
            return self._exchange(connection, method, path, body, sent)
        with self.connect() as connection:
            return self._exchange(connection, method, path, body, sent)

    def post(self, verb, body, **options):
        return self.request("POST", f"/v1/lookback/{verb}", body, **options)

    def get(self, path="", **options):
        return self.request("GET", f"/v1/lookback{path}", **options)

    @staticmethod
    def _exchange(connection, method, path, body, headers):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        read = Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        openapi.check(method, path, read.status, read.headers, read.text)
        return read


def prepare(id, biz_type="orders", **more):
    return {"version": 1, "biz_type": biz_type, "biz_id": id, "topic": "orders.new",
            "payload": {"id": id}, **more}


def decision(id, biz_type="orders", **more):
    return {"version": 1, "biz_type": biz_type, "biz_id": id, **more}


def start_api(start, folder, token, configuration, **settings):
    """A relay with an [api] and its configuration in this folder: (relay, api with the token), whose `relay` it is. start:
    make_relay."""
    path = folder / "relay.ini"
    path.write_text(configuration)
    path.chmod(0o600)
    port = free_port()
    relay = start(**{"config": path, "api_listen": port, **settings})
    relay.wait_event("api_listens")
    api = Api(port, token)
    api.relay = relay
    return relay, api


@contextlib.contextmanager
def shared_api(postgres, kafka, folder, name, token, sections="", statements=(), **settings):
    """The same with a database and a look-back topic of this name, for tests that leave all as it is. statements: SQL
    before the start."""
    postgres.create_database(name)
    dsn = postgres.dsn(name)
    assert run_command(["migrate", "up"], {"DATABASE_URL": dsn})[0] == 0
    with postgres.session(name) as session:
        for statement in statements:
            session.cursor().execute(statement)

    def start(**more):
        return Relay({"DATABASE_URL": dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
                      **{f"OUTBOX_RELAY_{key.upper()}": value for key, value in more.items()}}).start()

    relay, api = start_api(start, folder, token, CONFIG.format(topic=kafka.create_topic(name)) + CALLERS
                           + sections, **settings)
    with contextlib.closing(relay):
        yield relay, api
    postgres.drop_database(name)
    kafka.delete_topic(name)


def waits(database, table):
    """For each job of outbox.replay, redrive or verification, in the order of ids: seconds between its order and the beginning."""
    return [seconds for seconds, in database.execute(
        f"SELECT extract(epoch FROM begun_at - created_at)::float FROM outbox.{table} ORDER BY id")]
