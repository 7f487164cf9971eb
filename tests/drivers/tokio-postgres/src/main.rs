//! tokio-postgres with prepared statements, and with query_typed, which prepares none: PgBouncer gives each transaction
//! another session.

use std::collections::BTreeMap;
use std::time::SystemTime;

use base64::{engine::general_purpose::STANDARD, Engine};
use bytes::Bytes;
use futures_util::SinkExt;
use serde_json::Value;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{Json, ToSql, Type};
use tokio_postgres::{CopyInSink, Error, NoTls, Row, Transaction};
use uuid::Uuid;

const INSERT: &str = "insert into outbox.message (topic, key, payload) values ($1, $2, $3)";
const INSERT_JSON: &str = "insert into outbox.message (topic, key, payload) values ($1, $2, $3::jsonb)";
const INSERT_BYTES: &str = "insert into outbox.message (topic, key_bytes, payload_bytes) values ($1, $2, $3)";
const PUBLISH: &str = "select outbox.publish($1, $2, $3)";
const PUBLISH_BYTES: &str = "select outbox.publish($1, $2, $3::bytea)";
const PUBLISH_JSON: &str = "select outbox.publish($1, $2, $3::json)";
const RETURNING: &str =
	"insert into outbox.message (topic, key, payload) values ($1, $2, $3) returning id, event_id, created_at";
const STATE_OF: &str = "select id, created_at from outbox.message_state_of($1)";

type Failure = Box<dyn std::error::Error>;
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

struct Writer<'a> {
	transaction: &'a Transaction<'a>,
	typed: bool,
	topic: &'a String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
	let given: Value = serde_json::from_reader(std::io::stdin())?;
	let config = format!(
		"host={} port={} user={} dbname={}",
		given["host"].as_str().unwrap(),
		given["port"],
		given["user"].as_str().unwrap(),
		given["database"].as_str().unwrap()
	);
	let (mut client, connection) = tokio_postgres::connect(&config, NoTls).await?;
	tokio::spawn(connection);

	let topic = &given["topic"].as_str().unwrap().to_string();
	for typed in [true, false] {
		if !typed && given["pooled"] == true {
			continue;
		}
		let way = if typed { "typed" } else { "prepared" };
		let transaction = client.transaction().await?;
		let writer = Writer { transaction: &transaction, typed, topic };
		writer.write_all(way, &given).await?;
		if !typed {
			writer.copy_all(way, &given).await?;
		}
		transaction.commit().await?;

		let transaction = client.transaction().await?;
		Writer { transaction: &transaction, typed, topic }.refuse(&format!("{way}-bytes-as-text")).await?;
		transaction.rollback().await?;
	}
	Ok(())
}

impl Writer<'_> {
	async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
		if self.typed {
			return self.transaction.query_typed(statement, parameters).await;
		}
		let values: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|(value, _)| *value).collect();
		self.transaction.query(statement, &values).await
	}

	async fn write_all(&self, way: &str, given: &Value) -> Result<(), Failure> {
		for (name, text) in texts(given, "text") {
			self.query(INSERT, &[text_of(self.topic), text_of(&key(way, "insert", &name)), text_of(&text)]).await?;
			self.query(PUBLISH, &[text_of(self.topic), text_of(&key(way, "publish", &name)), (&Some(text.as_str()), Type::TEXT)])
				.await?;
		}
		println!("text {way}-insert\ntext {way}-publish");

		for (name, text) in texts(given, "bytes") {
			let value: Vec<u8> = STANDARD.decode(text)?;
			let key_bytes = key(way, "bytes", &name).into_bytes();
			self.query(INSERT_BYTES, &[text_of(self.topic), (&key_bytes, Type::BYTEA), (&value, Type::BYTEA)]).await?;
			self.query(
				PUBLISH_BYTES,
				&[text_of(self.topic), text_of(&key(way, "publish-bytes", &name)), (&value.as_slice(), Type::BYTEA)],
			)
			.await?;
		}
		println!("bytes {way}-bytes\nbytes {way}-publish-bytes");

		for (name, text) in texts(given, "json") {
			let value: Value = serde_json::from_str(&text)?;
			self.query(PUBLISH_JSON, &[text_of(self.topic), text_of(&key(way, "json", &name)), (&Json(value), Type::JSON)])
				.await?;
		}
		for (name, text) in texts(given, "jsonb") {
			let value: Value = serde_json::from_str(&text)?;
			self.query(INSERT_JSON, &[text_of(self.topic), text_of(&key(way, "jsonb", &name)), (&value, Type::JSONB)]).await?;
		}
		println!("json {way}-json\njsonb {way}-jsonb");

		let text = given["text"]["string"].as_str().unwrap().to_string();
		let its_key = key(way, "returning", "string");
		let parameters = [text_of(self.topic), text_of(&its_key), text_of(&text)];
		let row = &self.query(RETURNING, &parameters).await?[0];
		let event: Uuid = row.get("event_id");
		let state = &self.query(STATE_OF, &[(&event, Type::UUID)]).await?[0];
		assert_eq!(row.get::<_, i64>("id"), state.get::<_, i64>("id"));
		assert_eq!(row.get::<_, SystemTime>("created_at"), state.get::<_, SystemTime>("created_at"));
		println!("returned {way}-returning");
		Ok(())
	}

	async fn copy_all(&self, way: &str, given: &Value) -> Result<(), Failure> {
		let sink = self
			.transaction
			.copy_in("copy outbox.message (topic, key_bytes, payload_bytes) from stdin (format binary)")
			.await?;
		let copy = BinaryCopyInWriter::new(sink, &[Type::TEXT, Type::BYTEA, Type::BYTEA]);
		let mut copy = std::pin::pin!(copy);
		for (name, text) in texts(given, "bytes") {
			let (key, value) = (key(way, "copy-bytes", &name).into_bytes(), STANDARD.decode(text)?);
			copy.as_mut().write(&[self.topic, &key, &value]).await?;
		}
		copy.finish().await?;
		println!("bytes {way}-copy-bytes");

		let statement = "copy outbox.message (topic, key, payload) from stdin (format csv)";
		let sink: CopyInSink<Bytes> = self.transaction.copy_in(statement).await?;
		let mut sink = std::pin::pin!(sink);
		for (name, text) in texts(given, "text") {
			let line = format!("{},{},\"{}\"\n", self.topic, key(way, "copy-csv", &name), text.replace('"', "\"\""));
			sink.send(line.into_bytes().into()).await?;
		}
		sink.close().await?;
		println!("text {way}-copy-csv");
		Ok(())
	}

	/// A cast makes hexadecimal digits of bytes.
	async fn refuse(&self, way: &str) -> Result<(), Failure> {
		let bytes = b"{}".to_vec();
		let parameters = [text_of(self.topic), (&bytes as &(dyn ToSql + Sync), Type::BYTEA)];
		let statement = "insert into outbox.message (topic, payload) values ($1, $2::bytea::text)";
		let refusal = self.query(statement, &parameters).await.err().ok_or("bytes as text were not refused")?;
		let rule = refusal.as_db_error().and_then(|error| error.constraint()).ok_or(refusal.to_string())?;
		println!("refused {way} {rule}");
		Ok(())
	}
}

fn text_of(text: &String) -> Parameter<'_> {
	(text, Type::TEXT)
}

fn texts(given: &Value, word: &str) -> BTreeMap<String, String> {
	serde_json::from_value(given[word].clone()).expect("an object of texts")
}

fn key(way: &str, rest: &str, name: &str) -> String {
	format!("tokio-postgres/{way}-{rest}/{name}")
}
