"""What the sidecar sends is read by the CloudEvents and Standard Webhooks libraries of Python."""

import base64
import datetime
import json
import os
import pathlib
import sys

import pytest

from support.application import Application
from support.inbox import produce

SECRET = "whsec_" + base64.b64encode(b"n" * 24).decode()
STRUCTURED = {"specversion": "1.0", "id": "E-1", "source": "/shop", "type": "order.placed",
              "data": {"n": 12345678901234567890}}


@pytest.fixture(scope="module")
def sdks():
    """(read, verify); install.sh puts the libraries into the cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = str(pathlib.Path(home, "outbox-relay", "python-sdks-1", "packages"))
    sys.path.append(folder)
    from cloudevents.core.bindings.http import HTTPMessage, from_http_event
    from standardwebhooks.webhooks import Webhook
    sys.path.remove(folder)

    def read(delivery):
        return from_http_event(HTTPMessage(headers=delivery.headers, body=delivery.body))

    def verify(delivery):
        return Webhook(SECRET).verify(delivery.body, delivery.headers, json_parse=False)
    return read, verify


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_libraries_of_python_read_and_verify_each_request(make_sidecar, kafka, topic, sdks, mode):
    read, verify = sdks
    produce(kafka.bootstrap, topic, [
        ("plain", "k", '{"a": 1}', None, []),
        ("bytes", "k", b"\xff\x00\xfe", None, []),
        ("time", "k", "{}", None, [("ce_time", b"yesterday"), ("ce_source", b"my shop")]),
        ("whole", "k", json.dumps(STRUCTURED), None,
         [("content-type", b"application/cloudevents+json")]),
    ])
    with Application() as application:
        make_sidecar(application, secret=SECRET, mode=mode)
        application.wait_ids({"plain", "bytes", "time", "E-1"})
        for delivery in application.deliveries:
            verify(delivery)
        events = {event.get_id(): event for event in map(read, application.deliveries)}
        assert events["bytes"].get_data() == b"\xff\x00\xfe"
        assert events["time"].get_source() == f"/topics/{topic}"
        age = datetime.datetime.now(datetime.timezone.utc) - events["time"].get_time()
        assert age < datetime.timedelta(hours=1)
        assert events["E-1"].get_data() == STRUCTURED["data"]
        assert events["E-1"].get_source() == "/shop"
        assert application.of("E-1")[0].body == json.dumps(STRUCTURED).encode()
