"""Lists of the HTTP interface as files: CSV and JSON, all rows, with bounded memory, and for clients that leave."""

import contextlib
import csv
import io
import json
import pathlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import openapi
from support.api import CALLERS, READ, SEND, start_api
from support.process import wait_for
from support.relay import run_command

MANY = 100_000
PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), 'orders', convert_to((%s::text[])[1 + i %% cardinality(%s::text[])], 'UTF8'), 'x', 0,
        'dead', 'too large', 3, now() FROM generate_series(1, %s) i"""
KEYS = ["=1+1", "+1", "-1", "@x", 'say "hi", you', "a,b", "plain", "ä€"]
COLUMNS = "id,topic,key,state,attempts,next_at,error,parked_at,request,request_id".split(",")
LISTS = ["parked", "scheduled", "jobs", "replays", "audit", "publishers", "partitions", "preflight"]


@pytest.fixture
def api(make_relay, tmp_path):
    return start_api(make_relay, tmp_path, READ, CALLERS)[1]


def park(database, rows, keys=KEYS):
    database.execute(PARK, (keys, keys, rows))


def get(api, query):
    answer = api.request("GET", f"/v1/{query}")
    assert answer.status == 200, answer.text
    return answer


def test_a_file_has_all_rows_of_the_list(api, database):
    park(database, 2500)
    answer = get(api, "parked?format=csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="parked.csv"'
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    lines = answer.text.split("\r\n")
    assert lines[0].split(",") == COLUMNS and lines[-1] == "" and len(lines) == 2502 and "\n" not in "".join(lines)
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [int(row["id"]) for row in rows] == list(range(1, 2501))
    # a spreadsheet runs none of them
    assert [row["key"] for row in rows[:8]] == ["'+1", "'-1", "'@x", 'say "hi", you', "a,b", "plain", "ä€", "'=1+1"]
    assert (rows[0]["attempts"], rows[0]["request"], rows[0]["error"]) == ("3", "", "too large")

    answer = get(api, "parked?format=json&state=dead&from_id=400")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="parked.json"'
    assert [int(row["id"]) for row in answer.json] == list(range(400, 2501))
    assert {row["key"] for row in answer.json} == set(KEYS)
    assert get(api, "parked?format=json&after=2498").json == get(api, "parked?after=2498").json["rows"]
    assert get(api, "parked?format=csv&key=lost").text == ",".join(COLUMNS) + "\r\n"
    assert get(api, "parked?format=json&key=lost").json == []


@pytest.mark.parametrize("name", LISTS)
def test_each_list_is_a_file_with_all_members_of_its_rows(api, database, name):
    park(database, 3)
    assert run_command(["parked", "skip", "2", "--yes", "--reason", "a, \"b\""], {"DATABASE_URL": database.dsn})[0] == 0
    wait_for(lambda: get(api, "jobs?open=yes").json["rows"] == [])
    rows = get(api, f"{name}?format=json").json
    shown = get(api, name).json[{"publishers": "publishers", "preflight": "findings"}.get(name, "rows")]
    assert [sorted(row) for row in rows] == [sorted(row) for row in shown]
    file = list(csv.DictReader(io.StringIO(get(api, f"{name}?format=csv").text, newline="")))
    assert len(file) == len(rows)
    assert name in ("partitions", "preflight") or len(rows) == {"parked": 2, "jobs": 1, "audit": 1, "publishers": 1}.get(name, 0)
    assert rows or name in ("scheduled", "replays")
    schema = {"parked": "ParkedRow", "scheduled": "ScheduledRow", "jobs": "Job", "replays": "Job", "audit": "AuditRow",
              "publishers": "Publisher", "partitions": "Partition", "preflight": "Finding"}[name]
    header = get(api, f"{name}?format=csv").text.split("\r\n")[0].split(",")
    assert sorted(header) == sorted(openapi.document()["components"]["schemas"][schema]["properties"])
    for row, line in zip(rows, file):
        for column, value in row.items():
            if isinstance(value, (dict, list)):
                assert type(json.loads(line[column])) is type(value)
    assert api.as_(SEND).request("GET", f"/v1/{name}?format=csv").status == 403


@pytest.mark.parametrize("query, text", [
    ("parked?format=xml", "format=xml is neither csv nor json"), ("parked?format=", "format="), 
    ("parked?format=csv&after=x", "after=x"), ("scheduled?format=csv&after=x", "after=x is no place"), ("audit?format=csv&after=1", "after is no argument"),
    ("publishers/main?format=csv", "format is no argument")])
def test_a_wrong_request_for_a_file_is_refused(api, query, text):
    answer = api.request("GET", f"/v1/{query}")
    assert answer.status == 400 and text in answer.json["detail"], answer.text


def test_a_file_has_no_limit(api):
    answer = api.request("GET", "/v1/parked?format=csv&limit=5")
    assert (answer.status, answer.code) == (409, "conflicting_arguments") and "limit does not go" in answer.text


def resident(relay):
    return int(pathlib.Path(f"/proc/{relay.process.child.pid}/statm").read_text().split()[1]) * 4096


def begin(api, query, buffer=4096):
    """The socket of a client that has sent its request. What the relay has sent already comes slowly through a small
    buffer."""
    client = socket.create_connection(("127.0.0.1", api.port), timeout=30)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.sendall(f"GET /v1/{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {READ}\r\n\r\n".encode())
    return client


def test_many_rows_take_little_memory_and_none_are_read_for_a_client_that_left(api, database, scale):
    rows = scale(MANY * 10, MANY)
    park(database, rows)
    get(api, "parked?format=csv&from_id=1&to_id=2000")
    before = resident(api.relay)
    # clients that do not read, of which some leave
    clients = [begin(api, "parked?format=json") for _ in range(10)]
    for client in clients:
        begun = client.recv(100)
        assert begun.startswith(b"HTTP/1.1 200"), begun
    for client in clients[5:]:
        client.close()
    answer = get(api, "parked?format=csv")
    assert answer.text.count("\r\n") == rows + 1
    assert resident(api.relay) - before < 64 << 20
    for client in clients[:5]:
        client.close()
    wait_for(lambda: database.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'outbox-relay api'"
                                      " AND state <> 'idle'") == [(0,)])
    assert get(api, "parked?limit=1").status == 200


def test_a_file_that_has_begun_waits_while_too_many_calls_wait(api, database):
    """All threads wait for a lock, and 64 calls for a thread: a new call is refused, the next page of a file is not."""
    park(database, MANY)
    get(api, "parked?limit=1")
    client = begin(api, "parked?format=csv", buffer=1 << 18)
    received = [client.recv(1000)]
    assert received[0].startswith(b"HTTP/1.1 200")
    with contextlib.closing(database.connect(autocommit=False)) as session, ThreadPoolExecutor(80) as pool:
        session.cursor().execute("LOCK TABLE outbox.parked")
        calls = [pool.submit(api.request, "GET", "/v1/parked?limit=1") for _ in range(80)]
        wait_for(lambda: any(call.done() and call.result().code == "busy" for call in calls), what="a full queue")
        client.settimeout(1)
        with pytest.raises(TimeoutError):  # it has what was read before, and the connection stays
            while piece := client.recv(1 << 20):
                received.append(piece)
        session.rollback()
        assert {call.result().status for call in calls} == {200, 503}
        client.settimeout(30)
        while piece := client.recv(1 << 20):
            received.append(piece)
    file = b"".join(received)
    assert file.endswith(b"\r\n0\r\n\r\n") and b"\r\n%d," % MANY in file.replace(b'"', b"")


def test_a_file_breaks_off_when_the_relay_ends(api, database):
    """The last chunk is missing: nobody takes it for the whole list."""
    park(database, MANY)
    client = begin(api, "parked?format=json", buffer=1 << 18)
    received = client.recv(1000)
    assert received.startswith(b"HTTP/1.1 200") and b"chunked" in received
    api.relay.stop()
    while piece := client.recv(1 << 20):
        received = (received + piece)[-100:]
    assert not received.endswith(b"0\r\n\r\n")
