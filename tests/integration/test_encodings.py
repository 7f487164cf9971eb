"""Databases whose encoding is not UTF8: what their texts become, and what the look-back writes into them."""

import json
import zlib

import psycopg2
import pytest

from support.lookback import Case
from support.process import wait_for

# a text that the encoding has, and one that it has not
ENCODINGS = {"LATIN1": ("é", "€"), "WIN1252": ("€", "日"), "EUC_JP": ("日本", "😀"), "SQL_ASCII": ("é😀", None)}


@pytest.fixture(params=list(ENCODINGS))
def encoded(postgres, empty_database, request):
    """(encoding, a migrated database)."""
    name = f"{empty_database.name}_encoded"
    postgres.execute(f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
    empty_database.name, empty_database.dsn = name, postgres.dsn(name)
    yield request.param, empty_database.migrate()
    postgres.drop_database(name)


@pytest.mark.rotated
def test_texts_of_each_encoding_are_published_as_utf8(encoded, kafka, make_relay, request):
    encoding, database = encoded
    text, foreign = ENCODINGS[encoding]
    case = Case(database, kafka, make_relay, f"enc{zlib.crc32(request.node.nodeid.encode())}")
    relay = case.relay(database_url=database.dsn).wait_ready()
    connection = psycopg2.connect(database.dsn)
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("set client_encoding = '%s'" % ("SQL_ASCII" if encoding == "SQL_ASCII" else "UTF8"))
    value = text.encode()
    cursor.execute(b"select outbox.publish('%b', '%b', '{\"a\": \"%b\"}', '{\"h\": \"%b\"}')"
                   % (case.topics["orders"].encode(), value, value, value))
    case.application.send(case.application.prepared("1", key=text + "1", payload={"a": text + (foreign or "")},
                                                    headers={"h": text}))
    if foreign:
        case.application.send(case.application.prepared("2", key="2", headers={"h": foreign}))
    case.application.send(case.application.prepared("3", key="3"))
    case.application.commit("1", "2", "3")
    wait_for(lambda: set(case.ids()) >= {text, text + "1", "3"}, 60, "the row and the committed messages")
    found = {record.key.decode(): record for record in case.records()}
    assert found[text].payload == f'{{"a": "{text}"}}'.encode()
    assert json.loads(found[text + "1"].payload) == {"a": text + (foreign or "")}
    assert {dict(found[key].headers)["h"] for key in (text, text + "1")} == {value}
    if foreign:  # a header that the database cannot store
        wait_for(lambda: case.records("dead"), 60, "the dead letter")
    assert relay.running
    connection.close()
