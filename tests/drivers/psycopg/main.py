"""psycopg 3 and psycopg2."""

import base64
import csv
import io
import json
import sys

import psycopg
import psycopg2
import psycopg2.extras
from psycopg.types.json import Json, Jsonb

INSERT = "insert into outbox.message (topic, key, payload) values (%s, %s, %s)"
INSERT_BYTES = "insert into outbox.message (topic, key_bytes, payload_bytes) values (%s, %s, %s)"
PUBLISH = "select outbox.publish(%s, %s, %s)"

given = json.load(sys.stdin)
topic, texts = given["topic"], given["text"]
values = {name: base64.b64decode(text) for name, text in given["bytes"].items()}
where = {name: given[name] for name in ("host", "port", "user")} | {"dbname": given["database"]}


def each(word, way, cursor, statement, of, make=lambda value: value, key=lambda text: text):
    for name, value in of.items():
        cursor.execute(statement, (topic, key(f"psycopg/{way}/{name}"), make(value)))
    print(word, way)


def refused(way, connection, error_class, statement, *arguments):
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, arguments)
    except error_class as error:
        print("refused", way, error.diag.constraint_name)
    connection.rollback()


def returned(way, connection):
    with connection.cursor() as cursor:
        cursor.execute(f"{INSERT} returning id, event_id, created_at", (topic, f"psycopg/{way}/string", texts["string"]))
        number, event, created = cursor.fetchone()
    connection.commit()
    with connection.cursor() as cursor:
        cursor.execute("select id, created_at from outbox.message_state_of(%s)", (event,))
        assert cursor.fetchall() == [(number, created)]
    connection.commit()
    print("returned", way)


def csv_line(*fields):
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow(fields)
    return line.getvalue()


def version_3():
    # PgBouncer gives each transaction another session, in which nothing was prepared
    with psycopg.connect(**where, prepare_threshold=None if given["pooled"] else 5) as connection:
        with connection.cursor() as cursor:
            each("text", "3-insert", cursor, INSERT, texts)
            each("text", "3-publish", cursor, PUBLISH, texts)
            each("bytes", "3-bytes", cursor, INSERT_BYTES, values, key=str.encode)
            each("bytes", "3-publish-bytes", cursor, PUBLISH, values)
            each("json", "3-json", cursor, INSERT, given["json"], lambda text: Json(json.loads(text)))
            each("json", "3-publish-json", cursor, PUBLISH, given["json"], lambda text: Json(json.loads(text)))
            each("jsonb", "3-jsonb", cursor, INSERT, given["jsonb"], lambda text: Jsonb(json.loads(text)))
            each("jsonb", "3-publish-jsonb", cursor, PUBLISH, given["jsonb"], lambda text: Jsonb(json.loads(text)))
            cursor.executemany(INSERT, [(topic, f"psycopg/3-executemany/{name}", text)
                                        for name, text in texts.items()])
            print("text 3-executemany")
            cursor.executemany(INSERT_BYTES, [(topic, f"psycopg/3-executemany-bytes/{name}".encode(), value)
                                              for name, value in values.items()])
            print("bytes 3-executemany-bytes")
            with cursor.copy("copy outbox.message (topic, key, payload) from stdin") as copy:
                for name, text in texts.items():
                    copy.write_row((topic, f"psycopg/3-copy/{name}", text))
            print("text 3-copy")
            with cursor.copy("copy outbox.message (topic, key_bytes, payload_bytes) from stdin "
                             "(format binary)") as copy:
                copy.set_types(["text", "bytea", "bytea"])
                for name, value in values.items():
                    copy.write_row((topic, f"psycopg/3-copy-binary/{name}".encode(), value))
            print("bytes 3-copy-binary")
            with cursor.copy("copy outbox.message (topic, key, payload) from stdin (format csv)") as copy:
                for name, text in texts.items():
                    copy.write(csv_line(topic, f"psycopg/3-copy-csv/{name}", text))
            print("text 3-copy-csv")
        with connection.cursor(binary=True) as cursor:
            each("text", "3-binary", cursor, INSERT, texts)
        with connection.pipeline(), connection.cursor() as cursor:
            each("text", "3-pipeline", cursor, INSERT, texts)
        connection.commit()
        returned("3-returned", connection)
        refused("3-bytes-in-text-column", connection, psycopg.Error, INSERT, topic, "key", b"{}")
        refused("3-bytes-as-text", connection, psycopg.Error,
                "insert into outbox.message (topic, payload) values (%s, %s::bytea::text)", topic, b"{}")
    with psycopg.connect(**where) as connection, psycopg.ClientCursor(connection) as cursor:
        each("text", "3-client-side", cursor, INSERT, texts)


def version_2():
    connection = psycopg2.connect(**where)
    with connection, connection.cursor() as cursor:
        each("text", "2-insert", cursor, INSERT, texts)
        each("text", "2-publish", cursor, PUBLISH, texts)
        each("bytes", "2-bytes", cursor, INSERT_BYTES, values, key=str.encode)
        each("bytes", "2-publish-bytes", cursor, PUBLISH, values)
        each("json", "2-json", cursor, INSERT, given["json"], lambda text: psycopg2.extras.Json(json.loads(text)))
        psycopg2.extras.execute_values(
            cursor, "insert into outbox.message (topic, key, payload) values %s",
            [(topic, f"psycopg/2-execute-values/{name}", text) for name, text in texts.items()])
        print("text 2-execute-values")
        psycopg2.extras.execute_batch(
            cursor, INSERT, [(topic, f"psycopg/2-execute-batch/{name}", text) for name, text in texts.items()])
        print("text 2-execute-batch")
        cursor.executemany(INSERT, [(topic, f"psycopg/2-executemany/{name}", text) for name, text in texts.items()])
        print("text 2-executemany")
        cursor.copy_expert("copy outbox.message (topic, key, payload) from stdin (format csv)", io.StringIO(
            "".join(csv_line(topic, f"psycopg/2-copy-csv/{name}", text) for name, text in texts.items())))
        print("text 2-copy-csv")
    returned("2-returned", connection)
    refused("2-bytes-in-text-column", connection, psycopg2.Error, INSERT, topic, "key", psycopg2.Binary(b"{}"))
    refused("2-bytes-as-text", connection, psycopg2.Error,
            "insert into outbox.message (topic, payload) values (%s, %s::text)", topic, psycopg2.Binary(b"{}"))
    connection.close()


version_3()
version_2()
