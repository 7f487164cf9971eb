// A web service behind [deliver]: it charges each order once. Node's own library is all it needs.
//
//     WEBHOOK_SECRET=whsec_… node orders.mjs PORT FILE
//
// docs/guide/sidecar.md shows its parts.

import { createHmac, timingSafeEqual } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync, writeSync } from "node:fs";
import { createServer } from "node:http";

// snippet: verify
/** Standard Webhooks, of the last five minutes; secret: as the relay has it, whsec_… */
function isSigned(secret, headers, body) {
  const stamp = Number(headers["webhook-timestamp"]);
  if (!(Math.abs(Date.now() / 1000 - stamp) <= 300)) return false;
  const right = createHmac("sha256", Buffer.from(secret.replace(/^whsec_/, ""), "base64"))
    .update(`${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`)
    .update(body)
    .digest();
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => { // two while the secret is changed
    const given = Buffer.from(one.replace(/^v1,/, ""), "base64");
    return one.startsWith("v1,") && given.length === right.length && timingSafeEqual(given, right);
  });
}
// end

// snippet: charge
/** The charges, a line each: the charge and its id are written with one write. */
class Charges {
  constructor(path) {
    const text = existsSync(path) ? readFileSync(path, "utf8") : "";
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    if (whole !== text) truncateSync(path, Buffer.byteLength(whole)); // a crash tore the last one
    this.done = new Set(whole.split("\n").filter(Boolean).map((line) => JSON.parse(line).id));
    this.file = openSync(path, "a");
  }

  /** The status, and why. */
  charge(id, order) {
    if (typeof order?.customer !== "string" || typeof order.amount !== "number")
      return [422, "an order has a customer and an amount"]; // it never gets better: a dead letter
    if (this.done.has(id)) return [409, "charged before"];
    try {
      writeSync(this.file, JSON.stringify({ id, customer: order.customer, amount: order.amount }) + "\n");
      fsyncSync(this.file);
    } catch (error) {
      process.exitCode = 1; // what is in the file is not known: begin anew, and read it
      setImmediate(() => process.exit());
      return [503, error.message]; // no disk: not the order's fault
    }
    this.done.add(id);
    return [200, ""];
  }
}
// end

// snippet: answer
function answer(charges, secret, headers, body) {
  if (!isSigned(secret, headers, body)) return [401, "the signature is wrong"];
  let given;
  try {
    given = JSON.parse(body);
  } catch {
    return [400, "no JSON"];
  }
  if (!headers["content-type"].startsWith("application/cloudevents-batch+json"))
    return charges.charge(headers["webhook-id"], given); // the id that is signed; ce-… are not
  return [200, JSON.stringify(given.map((event) => {
    const [status, reason] = charges.charge(event.id, event.data);
    return { id: event.id, status, reason, ...(status === 503 && { retry_after: 1 }) };
  }))];
}

async function reply(charges, secret, request, response) {
  const parts = [];
  for await (const part of request) parts.push(part);
  const [status, text] = answer(charges, secret, request.headers, Buffer.concat(parts));
  response.writeHead(status, status === 503 ? { "Retry-After": "1" } : {}).end(text);
}
// end

const [port, path] = process.argv.slice(2);
const charges = new Charges(path);
createServer((request, response) => {
  reply(charges, process.env.WEBHOOK_SECRET, request, response).catch(() => response.destroy());
}).listen(Number(port), "127.0.0.1");
