// postgres.js.
"use strict";

const { once } = require("node:events");

const connect = require("postgres");

const escaped = (text) => text.replace(/[\\\t\n\r]/g, (character) =>
  ({ "\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r" })[character]);

module.exports = async ({ host, port, user, database, pooled, topic, text, json, jsonb, values, objects, keyOf, each,
  all, refused, returned }) => {
  // PgBouncer gives each transaction another session, in which nothing was prepared
  const sql = connect({ host, port, user, database, prepare: !pooled });
  const encoded = (value) => value === null ? "null" : sql.json(value); // the driver takes null for NULL

  await sql.begin(async (sql) => {
    await each("text", "insert", text, (key, payload) =>
      sql`insert into outbox.message (topic, key, payload) values (${topic}, ${key}, ${payload})`);
    await each("text", "helper", text, (key, payload) => sql`insert into outbox.message ${sql({ topic, key, payload })}`);
    await each("text", "publish", text, (key, payload) => sql`select outbox.publish(${topic}, ${key}, ${payload})`);
    await each("bytes", "bytes", values, (key, payload) => sql`insert into outbox.message ${
      sql({ topic, key_bytes: Buffer.from(key), payload_bytes: payload })}`);
    await each("bytes", "publish-bytes", values, (key, payload) => sql`select outbox.publish(${topic}, ${key}, ${payload})`);
    await each("bytes", "publish-bytes-cast", values, (key, payload) =>
      sql`select outbox.publish(${topic}, ${key}, ${payload}::bytea)`);
    await each("jsonb", "json", objects(jsonb), (key, value) =>
      sql`insert into outbox.message ${sql({ topic, key, payload: encoded(value) })}`);
    await each("jsonb", "publish-json", objects(jsonb), (key, value) =>
      sql`select outbox.publish(${topic}, ${key}, ${encoded(value)})`);
  });

  await all("text", "rows", text, (rows) => sql`insert into outbox.message ${
    sql(rows.map(([key, payload]) => ({ topic, key, payload })))}`);
  await all("text", "copy", text, async (rows) => {
    const stream = await sql`copy outbox.message (topic, key, payload) from stdin`.writable();
    stream.end(rows.map(([key, payload]) => `${topic}\t${key}\t${escaped(payload)}\n`).join(""));
    await once(stream, "finish");
  });
  await each("text", "unsafe", text, (key, payload) =>
    sql.unsafe("insert into outbox.message (topic, key, payload) values ($1, $2, $3)", [topic, key, payload]));

  await refused("bytes-as-text", () => sql`insert into outbox.message ${sql({ topic, payload: Buffer.from("{}") })}`);
  await refused("unsafe-bytes-as-text", () =>
    sql.unsafe("insert into outbox.message (topic, payload) values ($1, $2)", [topic, Buffer.from("{}")]));

  const [row] = await sql`insert into outbox.message ${sql({ topic, key: keyOf("returning", "string"), payload: text.string })}
    returning id, event_id, created_at`;
  await returned("returning", row, (event) => sql`select id, created_at from outbox.message_state_of(${event})`);
  await sql.end();
};
