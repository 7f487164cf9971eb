// A real OAuth 2 server for tests: node-oidc-provider, with the grant client_credentials.
//   node oidc.mjs PORT KEY CERTIFICATE CLIENTS LIFE_S
// CLIENTS: a JSON file with {"NAME": "SECRET"}, read at each request, so that a secret can be changed. It prints
// "ready" when it listens. POST /token gives tokens, and POST /token/introspection judges them.
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import Provider from "oidc-provider";

const [port, key, certificate, clients, life] = process.argv.slice(2);
const kept = new Map();

class Adapter {
  constructor(kind) {
    this.kind = kind;
  }
  async find(id) {
    if (this.kind !== "Client") return kept.get(`${this.kind}:${id}`);
    const secret = JSON.parse(readFileSync(clients, "utf8"))[id];
    return secret && {
      client_id: id,
      client_secret: secret,
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      token_endpoint_auth_method: "client_secret_basic",
      introspection_endpoint_auth_method: "client_secret_basic",
    };
  }
  async upsert(id, payload) {
    kept.set(`${this.kind}:${id}`, payload);
  }
  async destroy(id) {
    kept.delete(`${this.kind}:${id}`);
  }
}

const provider = new Provider(`https://127.0.0.1:${port}`, {
  adapter: Adapter,
  features: {
    clientCredentials: { enabled: true },
    introspection: { enabled: true, allowedPolicy: () => true },
    devInteractions: { enabled: false },
  },
  scopes: ["orders"],
  ttl: { ClientCredentials: Number(life) },
});

createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, provider.callback())
  .listen(Number(port), "127.0.0.1", () => console.log("ready"));
