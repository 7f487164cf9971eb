"""Django: an unmanaged model, create, bulk_create, JSONField, and functions by a cursor."""

import base64
import json
import sys

import django
from django.conf import settings

given = json.load(sys.stdin)
topic, texts = given["topic"], given["text"]
values = {name: base64.b64decode(encoded) for name, encoded in given["bytes"].items()}
settings.configure(USE_TZ=True, DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": given["database"], "USER": given["user"],
    "HOST": given["host"], "PORT": given["port"], "DISABLE_SERVER_SIDE_CURSORS": given["pooled"]}})
django.setup()

from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Value  # noqa: E402


def mapped(payload_field):
    """A model whose payload has this field."""
    class Message(models.Model):
        id = models.BigAutoField(primary_key=True)
        topic = models.TextField(default=topic)
        key = models.TextField(null=True)
        key_bytes = models.BinaryField(null=True)
        payload = payload_field
        payload_bytes = models.BinaryField(null=True)
        headers = models.JSONField(null=True)

        class Meta:
            managed = False
            app_label = type(payload_field).__name__
            db_table = 'outbox"."message'

    return Message


AsText, AsJson = mapped(models.TextField(null=True)), mapped(models.JSONField(null=True))


def key_of(way, name):
    return f"django/{way}/{name}"


def create(word, way, of, make):
    for name, value in of.items():
        make(key_of(way, name), value)
    print(word, way)


def call(key, value):
    with connection.cursor() as cursor:
        cursor.execute("select outbox.publish(%s, %s, %s)", (topic, key, value))


def refused(way, statement, *arguments):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, arguments)
    except IntegrityError as error:
        print("refused", way, error.__cause__.diag.constraint_name)


def returned(way):
    with transaction.atomic():
        message = AsText.objects.create(key=key_of(way, "string"), payload=texts["string"])
        with connection.cursor() as cursor:
            cursor.execute("select event_id, created_at from outbox.message where id = %s", (message.id,))
            event, created = cursor.fetchone()
    with connection.cursor() as cursor:
        cursor.execute("select id, created_at from outbox.message_state_of(%s)", (event,))
        assert cursor.fetchall() == [(message.id, created)]
    print("returned", way)


create("text", "create", texts, lambda key, value: AsText.objects.create(key=key, payload=value))
create("jsonb", "create-json", given["jsonb"], lambda key, value: AsJson.objects.create(
    key=key, payload=Value(json.loads(value), models.JSONField()) if value == "null" else json.loads(value)))
create("bytes", "create-bytes", values, lambda key, value: AsText.objects.create(key_bytes=key.encode(), payload_bytes=value))
with transaction.atomic():
    AsText.objects.bulk_create([AsText(key=key_of("bulk", name), payload=value) for name, value in texts.items()])
    print("text bulk")
    AsText.objects.bulk_create([AsText(key_bytes=key_of("bulk-bytes", name).encode(), payload_bytes=value)
                                for name, value in values.items()])
    print("bytes bulk-bytes")
    AsJson.objects.bulk_create([AsJson(key=key_of("bulk-json", name), payload=json.loads(value), headers={"source": "shop"})
                                for name, value in given["jsonb"].items() if value != "null"]
                               + [AsJson(key=key_of("bulk-json", "null"), payload=Value(None, models.JSONField()))])
    print("jsonb bulk-json")
create("text", "function", texts, call)
create("bytes", "function-bytes", values, call)
returned("returned")
refused("bytes-as-text", "insert into outbox.message (topic, payload) values (%s, %s::bytea::text)", topic, b"{}")
