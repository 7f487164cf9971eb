// Writes through the driver that the argument names. See ../harness.py.
//
// Each driver is a module here with an async function (given) that writes and calls what is exported below.
"use strict";

const assert = require("node:assert/strict");

const given = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const driver = process.argv[2];

given.values = Object.fromEntries(Object.entries(given.bytes).map(([name, text]) => [name, Buffer.from(text, "base64")]));
given.objects = (of) => Object.fromEntries(Object.entries(of).map(([name, text]) => [name, JSON.parse(text)]));
given.keyOf = (way, name) => `${driver}/${way}/${name}`;

/** One value after the other: write(key, value). */
given.each = async (word, way, of, write) => {
  for (const [name, value] of Object.entries(of)) await write(given.keyOf(way, name), value);
  console.log(word, way);
};

/** All values at once: write([[key, value], …]). */
given.all = async (word, way, of, write) => {
  await write(Object.entries(of).map(([name, value]) => [given.keyOf(way, name), value]));
  console.log(word, way);
};

/** Prints the constraint, or the code of the database's error or of Node's. */
given.refused = async (way, write) => {
  const error = await write().then(() => undefined, (error) => error);
  assert(error, `${way} was not refused`);
  const { constraint, constraint_name, code, name } = error.original ?? error.driverError ?? error;
  console.log("refused", way, constraint ?? constraint_name ?? code ?? name);
};

/** query(event id) gives the rows of outbox.message_state_of. */
given.returned = async (way, { id, event_id, created_at }, query) => {
  assert.match(event_id, /^[0-9a-f-]{36}$/);
  assert(created_at instanceof Date);
  const rows = await query(event_id);
  assert.deepEqual(rows.map((row) => [String(row.id), row.created_at]), [[String(id), created_at]]);
  console.log("returned", way);
};

require(`./${driver}.js`)(given).catch((error) => {
  console.error(error);
  process.exit(1);
});
