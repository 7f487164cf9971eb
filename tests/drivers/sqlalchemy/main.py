"""SQLAlchemy 2 with psycopg 3, psycopg2 and asyncpg."""

import asyncio
import base64
import datetime
import json
import sys
import uuid

from sqlalchemy import (JSON, URL, BigInteger, DateTime, FetchedValue, Identity, LargeBinary, MetaData, NullPool, Table,
                        Text, Uuid, create_engine, func, insert, literal, select, text)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

given = json.load(sys.stdin)
topic, texts = given["topic"], given["text"]
values = {name: base64.b64decode(encoded) for name, encoded in given["bytes"].items()}
pooled = given["pooled"]


class Columns:
    __tablename__ = "message"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    event_id: Mapped[uuid.UUID] = mapped_column(Uuid, server_default=FetchedValue())
    created_at: Mapped[datetime.datetime] = mapped_column(DateTime(timezone=True), server_default=FetchedValue())
    topic: Mapped[str] = mapped_column(Text)
    key: Mapped[str | None]
    key_bytes: Mapped[bytes | None] = mapped_column(LargeBinary)
    payload_bytes: Mapped[bytes | None] = mapped_column(LargeBinary)
    headers: Mapped[dict | None] = mapped_column(JSONB(none_as_null=True))


def mapped(payload_type):
    """A class whose attribute payload has this type; each is of another registry."""
    class Other(DeclarativeBase):
        pass

    class Message(Columns, Other):
        __table_args__ = {"schema": "outbox"}
        payload: Mapped[object] = mapped_column(payload_type)

    return Message


AsText, AsJson, AsJsonb = mapped(Text), mapped(JSON), mapped(JSONB)  # None is the null of JSON


def key_of(way, name):
    return f"sqlalchemy/{way}/{name}"


def write(driver, connection):
    """All ways of one driver. Asynchronous drivers run it inside run_sync."""
    with Session(bind=connection, expire_on_commit=False) as session:
        for name, value in texts.items():
            session.add(AsText(topic=topic, key=key_of(f"{driver}-orm", name), payload=value))
            session.flush()
        print("text", f"{driver}-orm")

        session.add_all([AsText(topic=topic, key=key_of(f"{driver}-orm-many", name), payload=value)
                         for name, value in texts.items()])
        session.flush()
        print("text", f"{driver}-orm-many")

        session.add_all([AsText(topic=topic, key_bytes=key_of(f"{driver}-orm-bytes", name).encode(), payload_bytes=value)
                         for name, value in values.items()])
        session.flush()
        print("bytes", f"{driver}-orm-bytes")

        for word, entity in (("json", AsJson), ("jsonb", AsJsonb)):
            session.add_all([entity(topic=topic, key=key_of(f"{driver}-orm-{word}", name), payload=json.loads(value),
                                    headers={"source": "shop"}) for name, value in given[word].items()])
            session.flush()
            print(word, f"{driver}-orm-{word}")

        session.execute(insert(AsText), [{"topic": topic, "key": key_of(f"{driver}-bulk", name), "payload": value}
                                         for name, value in texts.items()])
        print("text", f"{driver}-bulk")

        message = AsText(topic=topic, key=key_of(f"{driver}-returned", "string"), payload=texts["string"])
        session.add(message)
        session.commit()
    with Session(bind=connection) as session:
        state_of = session.execute(text("select id, created_at from outbox.message_state_of(:event)"),
                                   {"event": message.event_id}).all()
        assert state_of == [(message.id, message.created_at)], state_of
        print("returned", f"{driver}-returned")

        reflected = Table("message", MetaData(), schema="outbox", autoload_with=connection)
        returned = session.execute(
            insert(reflected).returning(reflected.c.id, reflected.c.event_id, reflected.c.created_at),
            [{"topic": topic, "key": key_of(f"{driver}-reflected", name), "payload": value}
             for name, value in texts.items()]).all()
        assert len(returned) == len(texts)
        print("text", f"{driver}-reflected")

        class Base(DeclarativeBase):
            pass

        class Reflected(Base):
            __table__ = reflected

        session.add_all([Reflected(topic=topic, key=key_of(f"{driver}-orm-reflected", name), payload=value)
                         for name, value in texts.items()])
        session.flush()
        print("text", f"{driver}-orm-reflected")

        for name, value in texts.items():
            session.execute(select(func.outbox.publish(topic, key_of(f"{driver}-publish", name), value)))
        print("text", f"{driver}-publish")
        for name, value in values.items():
            session.execute(select(func.outbox.publish(topic, key_of(f"{driver}-publish-bytes", name), value)))
        print("bytes", f"{driver}-publish-bytes")
        for word, kind in (("json", JSON), ("jsonb", JSONB)):
            for name, value in given[word].items():
                session.execute(select(func.outbox.publish(
                    topic, key_of(f"{driver}-publish-{word}", name), literal(json.loads(value), kind))))
            print(word, f"{driver}-publish-{word}")
        for name, value in texts.items():
            session.execute(text("insert into outbox.message (topic, key, payload) values (:topic, :key, :payload)"),
                            {"topic": topic, "key": key_of(f"{driver}-text", name), "payload": value})
        print("text", f"{driver}-text")
        session.commit()

        refused(session, f"{driver}-bytes-as-text", text("select outbox.publish(:topic, 'key', cast(:payload as bytea)::text)"),
                {"topic": topic, "payload": b"{}"})
        if driver != "asyncpg":  # refuses bytes for a text itself
            refused(session, f"{driver}-bytes-in-text-column", insert(AsText), {"topic": topic, "payload": b"{}"})


def refused(session, way, statement, parameters):
    try:
        session.execute(statement, parameters)
    except DBAPIError as error:
        cause = error.orig
        print("refused", way, cause.diag.constraint_name if hasattr(cause, "diag") else cause.__cause__.constraint_name)
    session.rollback()


def url(driver):
    return URL.create(f"postgresql+{driver}", given["user"], host=given["host"], port=given["port"],
                      database=given["database"])


async def write_asyncpg():
    # Behind PgBouncer each transaction is in another session, where a statement of the same name may be prepared.
    options = {"poolclass": NullPool, "connect_args": {
        "statement_cache_size": 0, "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"__asyncpg_{uuid.uuid4()}__"}} if pooled else {}
    engine = create_async_engine(url("asyncpg"), **options)
    async with engine.connect() as connection:
        await connection.run_sync(lambda inner: write("asyncpg", inner))
    await engine.dispose()


for driver, options in (("psycopg", {"connect_args": {"prepare_threshold": None}} if pooled else {}), ("psycopg2", {})):
    with create_engine(url(driver), **options).connect() as connection:
        write(driver, connection)
asyncio.run(write_asyncpg())
