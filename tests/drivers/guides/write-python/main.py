"""Calls the functions of docs/guide/write/python.md, each for an order of its own."""

import os

import django
import psycopg
from django.conf import settings
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import with_psycopg
import with_sqlalchemy

URL = os.environ["DATABASE_URL"]

with psycopg.connect(URL, autocommit=True) as connection:
    print("json 1", with_psycopg.pay(connection, 1))
    with connection.transaction():
        connection.execute("update orders set state = 'paid' where id = 2")
        print("bytes 2", with_psycopg.publish_bytes(connection, "2", b"\x00\x01\xff"))

with Session(create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))) as session:
    print("json 3", with_sqlalchemy.pay(session, 3))

settings.configure(INSTALLED_APPS=["shop"], DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
    "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}})
django.setup()
from shop.models import pay  # noqa: E402

print("json 4", pay(4))
