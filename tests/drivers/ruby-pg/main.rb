# Ruby's pg: parameters as text, typed and binary, encoders, prepared statements and COPY; Sequel above it.

require "base64"
require "json"
require "pg"
require "sequel"

GIVEN = JSON.parse($stdin.read)
TOPIC = GIVEN["topic"]
TEXTS = GIVEN["text"]
VALUES = GIVEN["bytes"].transform_values { |value| Base64.strict_decode64(value) }
INSERT = "insert into outbox.message (topic, key, payload) values ($1, $2, $3)"
INSERT_BYTES = "insert into outbox.message (topic, key_bytes, payload_bytes) values ($1, $2, $3)"
PUBLISH = "select outbox.publish($1, $2, $3)"

def each_value(word, way, values)
  values.each { |name, value| yield "ruby-pg/#{way}/#{name}", value }
  puts "#{word} #{way}"
end

def binary(value)
  { value: value, format: 1 }
end

def bytea(value)
  { value: value, type: 17, format: 1 }
end

def refused(way)
  yield
rescue PG::CheckViolation => error
  puts "refused #{way} #{error.result.error_field(PG::Result::PG_DIAG_CONSTRAINT_NAME)}"
end

def write(connection)
  connection.transaction do
    each_value("text", "insert", TEXTS) { |key, value| connection.exec_params(INSERT, [TOPIC, key, value]) }
    each_value("text", "publish", TEXTS) { |key, value| connection.exec_params(PUBLISH, [TOPIC, key, value]) }
    each_value("bytes", "bytes", VALUES) do |key, value|
      connection.exec_params(INSERT_BYTES, [TOPIC, binary(key), binary(value)])
    end
    each_value("bytes", "publish-bytes", VALUES) do |key, value|
      connection.exec_params(PUBLISH, [TOPIC, bytea(key), bytea(value)])
    end
    each_value("json", "json", GIVEN["json"]) do |key, value|
      connection.exec_params(INSERT, [TOPIC, key, JSON.generate(JSON.parse(value))])
    end
    each_value("jsonb", "publish-jsonb", GIVEN["jsonb"]) do |key, value|
      connection.exec_params("select outbox.publish($1, $2, $3::jsonb, $4)",
                             [TOPIC, key, JSON.generate(JSON.parse(value)), JSON.generate(source: "shop")])
    end
    connection.prepare("write", INSERT) # behind PgBouncer only within this transaction
    each_value("text", "prepared", TEXTS) { |key, value| connection.exec_prepared("write", [TOPIC, key, value]) }
    connection.exec("deallocate write")
    connection.copy_data("copy outbox.message (topic, key, payload) from stdin", PG::TextEncoder::CopyRow.new) do
      each_value("text", "copy", TEXTS) { |key, value| connection.put_copy_data([TOPIC, key, value]) }
    end
  end

  by_class = PG::BasicTypeMapForQueries.new(connection)
  connection.transaction do
    each_value("text", "type-map", TEXTS) { |key, value| connection.exec_params(INSERT, [TOPIC, key, value], 0, by_class) }
    each_value("bytes", "type-map-bytes", VALUES) do |key, value|
      connection.exec_params(INSERT_BYTES, [TOPIC, PG::BasicTypeMapForQueries::BinaryData.new(key),
                                            PG::BasicTypeMapForQueries::BinaryData.new(value)], 0, by_class)
    end
  end

  row = connection.exec_params("#{INSERT} returning id, event_id, created_at", [TOPIC, "ruby-pg/returned/string", TEXTS["string"]])[0]
  state = connection.exec_params("select id, created_at from outbox.message_state_of($1)", [row["event_id"]]).to_a
  raise "state: #{state}" unless state == [row.slice("id", "created_at")]
  puts "returned returned"

  refused("bytes-as-text") do
    connection.exec_params("insert into outbox.message (topic, payload) values ($1, $2::text)",
                           [TOPIC, connection.escape_bytea("{}".b)])
  end
end

def write_by_sequel(database)
  messages = database[Sequel[:outbox][:message]]
  database.transaction do
    each_value("text", "sequel", TEXTS) { |key, value| messages.insert(topic: TOPIC, key: key, payload: value) }
    messages.import(%i[topic key payload], TEXTS.map { |name, value| [TOPIC, "ruby-pg/sequel-import/#{name}", value] })
    puts "text sequel-import"
    each_value("bytes", "sequel-bytes", VALUES) do |key, value|
      messages.insert(topic: TOPIC, key: key, payload_bytes: Sequel.blob(value))
    end
    each_value("jsonb", "sequel-jsonb", GIVEN["jsonb"]) do |key, value|
      messages.insert(topic: TOPIC, key: key, payload: Sequel.pg_jsonb_wrap(JSON.parse(value)))
    end
  end
end

connection = PG.connect(host: GIVEN["host"], port: GIVEN["port"], user: GIVEN["user"], dbname: GIVEN["database"])
write(connection)
connection.close
Sequel.extension :pg_json
database = Sequel.connect(adapter: "postgres", host: GIVEN["host"], port: GIVEN["port"], user: GIVEN["user"],
                          database: GIVEN["database"])
database.extension :pg_json
write_by_sequel(database)
