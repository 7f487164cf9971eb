// node-postgres.
"use strict";

const { Client, Pool } = require("pg");

const INSERT = "insert into outbox.message (topic, key, payload) values ($1, $2, $3)";
const INSERT_BYTES = "insert into outbox.message (topic, key_bytes, payload_bytes) values ($1, $2, $3)";
const PUBLISH = "select outbox.publish($1, $2, $3)";
const NOT_UTF8 = Buffer.from([0x7b, 0xff, 0x7d]);

module.exports = async ({ host, port, user, database, pooled, topic, text, json, jsonb, values, objects, keyOf, each,
  all, refused, returned }) => {
  const client = new Client({ host, port, user, database });
  await client.connect();
  const write = (statement) => (key, value) => client.query(statement, [topic, key, value]);

  await client.query("begin");
  await each("text", "insert", text, write(INSERT));
  await each("text", "publish", text, write(PUBLISH));
  await each("bytes", "bytes", values, write(INSERT_BYTES));
  await each("bytes", "publish-bytes", values, write("select outbox.publish($1, $2, $3::bytea)"));
  await each("jsonb", "publish-jsonb", jsonb, write("select outbox.publish($1, $2, $3::jsonb)"));
  // node-postgres encodes objects as JSON, but neither strings nor null
  await each("json", "object", objects(json), (key, value) =>
    write(INSERT)(key, value !== null && typeof value === "object" ? value : JSON.stringify(value)));
  await client.query("commit");

  await all("text", "rows", text, (rows) => client.query(
    `insert into outbox.message (topic, key, payload) values ${rows.map((_, i) => `($1, $${2 * i + 2}, $${2 * i + 3})`)}`,
    [topic, ...rows.flat()]));
  await all("text", "unnest", text, (rows) => client.query(
    "insert into outbox.message (topic, key, payload) select $1, * from unnest($2::text[], $3::text[])",
    [topic, rows.map(([key]) => key), rows.map(([, value]) => value)]));
  if (!pooled) // PgBouncer gives each transaction another session, in which nothing was prepared
    await each("text", "prepared", text, (key, value) =>
      client.query({ name: "insert", text: INSERT, values: [topic, key, value] }));
  await each("text", "literal", text, (key, value) => client.query(
    `insert into outbox.message (topic, key, payload) values (${[topic, key, value].map((s) => client.escapeLiteral(s))})`));

  // a Buffer is sent as it is: as text, it arrives byte for byte or is refused
  await each("text", "buffer-as-text", text, (key, value) => write(INSERT)(key, Buffer.from(value)));
  await refused("bytes-as-text", () => write(INSERT)("k", NOT_UTF8));
  await refused("publish-bytes-as-text", () => write(PUBLISH)("k", NOT_UTF8));
  await refused("bytes-by-cast", () => write("insert into outbox.message (topic, key, payload) values ($1, $2, $3::bytea)")("k", NOT_UTF8));

  const pool = new Pool({ host, port, user, database });
  const { rows } = await pool.query(`${INSERT} returning id, event_id, created_at`,
    [topic, keyOf("returning", "string"), text.string]);
  await returned("returning", rows[0], async (event) =>
    (await pool.query("select id, created_at from outbox.message_state_of($1)", [event])).rows);
  await pool.end();
  await client.end();
};
