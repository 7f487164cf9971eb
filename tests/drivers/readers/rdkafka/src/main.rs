use std::io::stdin;

use base64::{engine::general_purpose::STANDARD, Engine};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::ClientConfig;
use serde_json::{json, Value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
	let given: Value = serde_json::from_reader(stdin())?;
	let word = |name: &str| given[name].as_str().unwrap();
	let consumer: BaseConsumer = ClientConfig::new()
		.set("bootstrap.servers", word("bootstrap"))
		.set("group.id", word("group"))
		.set("auto.offset.reset", "earliest")
		.create()?;
	consumer.subscribe(&[word("topic")])?;
	for _ in 0..given["count"].as_u64().unwrap() {
		let message = consumer.poll(None).ok_or("the consumer has ended")??;
		let headers: Vec<Value> = message
			.headers()
			.map(|headers| headers.iter().map(|header| json!([header.key, encode(header.value)])).collect())
			.unwrap_or_default();
		println!(
			"{}",
			json!({"partition": message.partition(), "offset": message.offset(), "key": encode(message.key()),
				"value": encode(message.payload()), "headers": headers})
		);
	}
	Ok(())
}

fn encode(value: Option<&[u8]>) -> Option<String> {
	value.map(|value| STANDARD.encode(value))
}
