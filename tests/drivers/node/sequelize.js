// Sequelize, with node-postgres.
"use strict";

const { DataTypes, QueryTypes, Sequelize } = require("sequelize");

const STORED = ["id", "event_id", "created_at"]; // what the role of an application may read

module.exports = async ({ host, port, user, database, topic, text, json, jsonb, values, objects, keyOf, each, all,
  refused, returned }) => {
  const sequelize = new Sequelize({ dialect: "postgres", host, port, username: user, database, logging: false });
  const define = (name, payload) => sequelize.define(name, {
    event_id: { type: DataTypes.UUID, primaryKey: true, autoIncrement: true }, // which makes it DEFAULT
    id: DataTypes.BIGINT,
    created_at: DataTypes.DATE,
    topic: DataTypes.TEXT,
    key: DataTypes.TEXT,
    payload,
    key_bytes: DataTypes.BLOB,
    payload_bytes: DataTypes.BLOB,
    headers: DataTypes.JSONB,
  }, {
    schema: "outbox",
    tableName: "message",
    timestamps: false,
    hooks: {
      beforeCreate: (_, options) => { options.returning = STORED; },
      beforeBulkCreate: (_, options) => { options.returning = STORED; },
    },
  });
  const Text = define("Text", DataTypes.TEXT);
  const Json = define("Json", DataTypes.JSON);
  const Jsonb = define("Jsonb", DataTypes.JSONB);

  await sequelize.transaction(async (transaction) => {
    await each("text", "create", text, (key, payload) => Text.create({ topic, key, payload }, { transaction }));
    await each("bytes", "create-bytes", values, (key, payload_bytes) =>
      Text.create({ topic, key_bytes: Buffer.from(key), payload_bytes }, { transaction }));
    await each("json", "create-json", objects(json), (key, payload) =>
      Json.create({ topic, key, payload: payload ?? Sequelize.literal("'null'") }, { transaction }));
    await each("jsonb", "create-jsonb", objects(jsonb), (key, payload) =>
      Jsonb.create({ topic, key, payload: payload ?? Sequelize.literal("'null'") }, { transaction }));
    await each("text", "publish", text, (key, payload) => sequelize.query("select outbox.publish($1, $2, $3)",
      { bind: [topic, key, payload], transaction }));
    await each("text", "replacements", text, (key, payload) => sequelize.query("select outbox.publish(:topic, :key, :payload)",
      { replacements: { topic, key, payload }, transaction }));
    await each("bytes", "replacements-bytes", values, (key, payload) => sequelize.query(
      "select outbox.publish(:topic, :key, :payload::bytea)", { replacements: { topic, key, payload }, transaction }));
  });

  await all("text", "bulk", text, (rows) => Text.bulkCreate(rows.map(([key, payload]) => ({ topic, key, payload }))));
  await all("json", "bulk-json", objects(json), (rows) => Json.bulkCreate(
    rows.map(([key, payload]) => ({ topic, key, payload: payload ?? Sequelize.literal("'null'") }))));
  await all("bytes", "bulk-bytes", values, (rows) => Text.bulkCreate(
    rows.map(([key, payload_bytes]) => ({ topic, key_bytes: Buffer.from(key), payload_bytes }))));

  await each("text", "buffer-as-text", text, (key, value) => Text.create({ topic, key, payload: Buffer.from(value) }));
  await refused("bytes-as-text", () => Text.create({ topic, payload: Buffer.from([0x7b, 0xff, 0x7d]) }));
  await refused("bulk-bytes-as-text", () => Text.bulkCreate([{ topic, payload: Buffer.from("{}") }]));
  await refused("object-as-text", () => Text.create({ topic, payload: { a: 1 } }));

  const row = await Text.create({ topic, key: keyOf("returned", "string"), payload: text.string });
  await returned("returned", row, (event) => sequelize.query("select id, created_at from outbox.message_state_of($1)",
    { bind: [event], type: QueryTypes.SELECT }));
  await sequelize.close();
};
