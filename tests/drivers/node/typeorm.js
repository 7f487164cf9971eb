// TypeORM, with node-postgres.
"use strict";

const { DataSource, EntitySchema } = require("typeorm");

const entity = (name, payload) => new EntitySchema({
  name,
  schema: "outbox",
  tableName: "message",
  columns: {
    event_id: { type: "uuid", primary: true, generated: "uuid" },
    id: { type: "bigint", insert: false, default: "" },
    created_at: { type: "timestamptz", createDate: true, insert: false },
    topic: { type: "text" },
    key: { type: "text", nullable: true },
    payload: { type: payload, nullable: true },
    key_bytes: { type: "bytea", nullable: true },
    payload_bytes: { type: "bytea", nullable: true },
    headers: { type: "jsonb", nullable: true },
  },
});

module.exports = async ({ host, port, user, database, topic, text, json, jsonb, values, objects, keyOf, each, all,
  refused, returned }) => {
  const source = await new DataSource({
    type: "postgres", host, port, username: user, database, installExtensions: false,
    entities: [entity("Text", "text"), entity("Json", "json"), entity("Jsonb", "jsonb")],
  }).initialize();
  const Text = source.getRepository("Text");
  const NULL = () => "'null'"; // TypeORM takes null for NULL

  await source.transaction(async (manager) => {
    await each("text", "save", text, (key, payload) => manager.save("Text", { topic, key, payload }));
    await each("bytes", "save-bytes", values, (key, payload_bytes) =>
      manager.save("Text", { topic, key_bytes: Buffer.from(key), payload_bytes }));
    await each("json", "save-json", objects(json), (key, payload) => manager.save("Json", { topic, key, payload: payload ?? NULL }));
    await each("jsonb", "save-jsonb", objects(jsonb), (key, payload) =>
      manager.save("Jsonb", { topic, key, payload: payload ?? NULL }));
    await each("text", "publish", text, (key, payload) =>
      manager.query("select outbox.publish($1, $2, $3)", [topic, key, payload]));
    await each("bytes", "publish-bytes", values, (key, payload) =>
      manager.query("select outbox.publish($1, $2, $3::bytea)", [topic, key, payload]));
  });

  await each("text", "insert", text, (key, payload) => Text.insert({ topic, key, payload }));
  await all("text", "save-all", text, (rows) => Text.save(rows.map(([key, payload]) => ({ topic, key, payload }))));
  await all("text", "insert-all", text, (rows) => Text.insert(rows.map(([key, payload]) => ({ topic, key, payload }))));
  await all("bytes", "insert-all-bytes", values, (rows) => Text.insert(
    rows.map(([key, payload_bytes]) => ({ topic, key_bytes: Buffer.from(key), payload_bytes }))));
  await all("text", "query-builder", text, (rows) => source.createQueryBuilder().insert().into("outbox.message",
    ["topic", "key", "payload"]).values(rows.map(([key, payload]) => ({ topic, key, payload }))).execute());

  await each("text", "buffer-as-text", text, (key, value) => Text.save({ topic, key, payload: Buffer.from(value) }));
  await refused("bytes-as-text", () => Text.save({ topic, payload: Buffer.from([0x7b, 0xff, 0x7d]) }));

  const row = await Text.save({ topic, key: keyOf("returned", "string"), payload: text.string });
  await returned("returned", row, (event) => source.query("select id, created_at from outbox.message_state_of($1)", [event]));
  await source.destroy();
};
