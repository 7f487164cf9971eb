// Knex, with node-postgres.
"use strict";

const connect = require("knex");

module.exports = async ({ host, port, user, database, topic, text, json, values, objects, keyOf, each, all, refused,
  returned }) => {
  const knex = connect({ client: "pg", connection: { host, port, user, database } });

  await knex.transaction(async (trx) => {
    await each("text", "insert", text, (key, payload) => trx("outbox.message").insert({ topic, key, payload }));
    await each("text", "publish", text, (key, payload) => trx.raw("select outbox.publish(?, ?, ?)", [topic, key, payload]));
    await each("text", "publish-named", text, (key, payload) =>
      trx.raw("select outbox.publish(:topic, :key, :payload)", { topic, key, payload }));
    await each("bytes", "bytes", values, (key, payload) =>
      trx("outbox.message").insert({ topic, key_bytes: Buffer.from(key), payload_bytes: payload }));
    await each("bytes", "publish-bytes", values, (key, payload) =>
      trx.raw("select outbox.publish(?, ?, ?::bytea)", [topic, key, payload]));
    // node-postgres encodes objects as JSON, but neither strings nor null
    await each("json", "object", objects(json), (key, value) => trx("outbox.message").insert({
      topic, key, payload: value !== null && typeof value === "object" ? value : JSON.stringify(value) }));
  });

  await all("text", "rows", text, (rows) =>
    knex.withSchema("outbox").table("message").insert(rows.map(([key, payload]) => ({ topic, key, payload }))));
  await all("text", "batch", text, (rows) =>
    knex.batchInsert("outbox.message", rows.map(([key, payload]) => ({ topic, key, payload })), 4));
  await each("text", "buffer-as-text", text, (key, value) =>
    knex("outbox.message").insert({ topic, key, payload: Buffer.from(value) }));

  await refused("bytes-as-text", () => knex("outbox.message").insert({ topic, payload: Buffer.from([0x7b, 0xff, 0x7d]) }));
  await refused("bytes-by-cast", () =>
    knex("outbox.message").insert({ topic, payload: knex.raw("?::bytea", [Buffer.from("{}")]) }));

  const [row] = await knex("outbox.message").insert({ topic, key: keyOf("returning", "string"), payload: text.string },
    ["id", "event_id", "created_at"]);
  await returned("returning", row, (event) => knex.select("id", "created_at").from(knex.raw("outbox.message_state_of(?)", [event])));
  await knex.destroy();
};
