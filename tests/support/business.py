"""A business that the look-back asks over HTTP: a thread of its own, for thousands of requests a second.

    with Business(lambda biz_type, ids: dict.fromkeys(ids, "commit")) as business:
        … business.url, business.questions
"""

import asyncio
import inspect
import json
import re
import threading
import time
from dataclasses import dataclass

from .process import free_port

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(slots=True)
class Question:
    """One request."""
    at: float  # time.monotonic() of its arrival
    biz_type: str
    attempts: dict  # by id


class _Connection(asyncio.Protocol):
    def __init__(self, business):
        self.business, self.buffer, self.transport = business, b"", None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        head, mark, rest = self.buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        length = int(LENGTH.search(head)[1])
        if len(rest) >= length:  # the next one comes when this is answered
            self.buffer = rest[length:]
            self.business._asked(self, json.loads(rest[:length]))

    def say(self, body):
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


class Business:
    """answer(biz_type, ids): {id: word} of those that it says something of, or bytes, which are said as
    they are, or None: the connection is closed without an answer; or a coroutine of one of these. It is
    called in the business's thread.

    It has its port from the beginning, and listens from start() to close().
    """

    def __init__(self, answer):
        self.answer = answer
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/lookback"
        self.questions = []
        self.open = self.most_open = 0
        self.loop = None
        self.thread = None
        self.failures = []  # of the answer

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def start(self):
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self.loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024))
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        return self

    def close(self):
        if self.thread:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.thread = None
        assert not self.failures, self.failures

    def _asked(self, connection, body):
        asked = body["ids"] if "ids" in body else [body]
        question = Question(time.monotonic(), body["biz_type"],
                            {one["biz_id"]: one["attempt"] for one in asked})
        self.questions.append(question)
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        answer = self._call(self.answer, question.biz_type, list(question.attempts))
        if inspect.isawaitable(answer):
            self.loop.create_task(self._say_later(connection, body, answer))
        else:
            self._say(connection, body, answer)

    def _call(self, function, *arguments):
        try:
            return function(*arguments)
        except Exception as failure:  # told at the end; until then it is no answer
            self.failures.append(failure)
            return None

    async def _say_later(self, connection, body, answer):
        try:
            said = await answer
        except Exception as failure:
            self.failures.append(failure)
            said = None
        self._say(connection, body, said)

    def _say(self, connection, body, answer):
        self.open -= 1
        if answer is None:
            connection.transport.close()
            return
        if not isinstance(answer, bytes):
            pairs = [{"biz_id": id, "decision": word} for id, word in answer.items()]
            answer = json.dumps({"answers": pairs} if "ids" in body else pairs[0]).encode()
        connection.say(answer)
