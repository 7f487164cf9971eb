// Reads with KafkaJS. See ../../readers.py.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const given = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const encode = (value) => value === null || value === undefined ? null : Buffer.from(value).toString("base64");
/** KafkaJS makes an array of the values of headers with one name. */
const pairs = (headers) => Object.entries(headers).flatMap(([name, values]) =>
  (Array.isArray(values) ? values : [values]).map((value) => [name, encode(value)]));

(async () => {
  const consumer = new Kafka({ brokers: [given.bootstrap], logLevel: logLevel.ERROR }).consumer({ groupId: given.group });
  let left = given.count;
  await consumer.connect();
  await consumer.subscribe({ topics: [given.topic], fromBeginning: true });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    console.error(payload.error);
    process.exit(1);
  });
  await new Promise((done, fail) => consumer.run({
    eachMessage: async ({ partition, message: { offset, key, value, headers } }) => {
      if (left <= 0) return;
      console.log(JSON.stringify({ partition, offset: Number(offset), key: encode(key), value: encode(value), headers: pairs(headers) }));
      left -= 1;
      if (left === 0) done();
    },
  }).catch(fail));
  await consumer.disconnect();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
