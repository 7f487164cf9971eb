<?php
/* PDO with pgsql: prepared by the server, emulated, by name and by position, streams, and functions. */

error_reporting(E_ALL);
set_error_handler(fn($number, $message) => throw new ErrorException($message));

$given = json_decode(stream_get_contents(STDIN), false);
$topic = $given->topic;
$all_texts = (array) $given->text;
$values = array_map('base64_decode', (array) $given->bytes);

const INSERT = 'insert into outbox.message (topic, key, payload) values (?, ?, ?)';

/* Behind PgBouncer a statement that the server prepares is only good in its transaction. */
const KINDS = [
	'prepared' => [],
	'unprepared' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true],
	'emulated' => [PDO::ATTR_EMULATE_PREPARES => true],
];

function connect(array $options): PDO
{
	global $given;
	return new PDO("pgsql:host=$given->host;port=$given->port;dbname=$given->database", $given->user, null,
		[PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION] + $options);
}

/* One prepared statement for all values: from the second one on, the server's plan is used again. */
function each_value(string $word, string $way, PDO $pdo, string $sql, iterable $values, callable $bind): void
{
	global $topic;
	$pdo->beginTransaction();
	$statement = $pdo->prepare($sql);
	foreach ($values as $name => $value) {
		$bind($statement, $topic, "pdo/$way/$name", $value);
		$statement->execute();
	}
	$pdo->commit();
	echo "$word $way\n";
}

function as_stream(string $bytes)
{
	$stream = fopen('php://memory', 'r+');
	fwrite($stream, $bytes);
	rewind($stream);
	return $stream;
}

$texts = function ($statement, $topic, $key, $value) {
	$statement->bindValue(1, $topic);
	$statement->bindValue(2, $key);
	$statement->bindValue(3, $value);
};
$named = function ($statement, $topic, $key, $value) {
	$statement->bindValue(':topic', $topic, PDO::PARAM_STR);
	$statement->bindValue(':key', $key, PDO::PARAM_STR);
	$statement->bindValue(':payload', $value, PDO::PARAM_STR);
};
$bytes = function ($statement, $topic, $key, $value) {
	$statement->bindValue(1, $topic);
	$statement->bindValue(2, $key, PDO::PARAM_LOB);
	$statement->bindValue(3, $value, PDO::PARAM_LOB);
};
$streams = function ($statement, $topic, $key, $value) {
	$statement->bindValue(1, $topic);
	$statement->bindValue(2, as_stream($key), PDO::PARAM_LOB);
	$statement->bindValue(3, as_stream($value), PDO::PARAM_LOB);
};
$payload_bytes = function ($statement, $topic, $key, $value) {
	$statement->bindValue(1, $topic);
	$statement->bindValue(2, $key);
	$statement->bindValue(3, $value, PDO::PARAM_LOB);
};

foreach (KINDS as $kind => $options) {
	$pdo = connect($options);
	each_value('text', "$kind-insert", $pdo, INSERT, $all_texts, $texts);
	each_value('text', "$kind-named", $pdo,
		'insert into outbox.message (topic, key, payload) values (:topic, :key, :payload)', $all_texts, $named);
	each_value('text', "$kind-publish", $pdo, 'select outbox.publish(?, ?, ?)', $all_texts, $texts);
	$decoded = array_map(fn($text) => json_encode(json_decode($text)), (array) $given->json);
	each_value('json', "$kind-json", $pdo, INSERT, $decoded, $texts);
	each_value('json', "$kind-publish-json", $pdo, 'select outbox.publish(?, ?, ?::json)', $decoded, $texts);
	$decoded = array_map(fn($text) => json_encode(json_decode($text)), (array) $given->jsonb);
	each_value('jsonb', "$kind-publish-jsonb", $pdo, 'select outbox.publish(?, ?, ?::jsonb, \'{"source": "shop"}\')',
		$decoded, $texts);
	each_value('bytes', "$kind-bytes", $pdo,
		'insert into outbox.message (topic, key_bytes, payload_bytes) values (?, ?, ?)', $values, $bytes);
	each_value('bytes', "$kind-streams", $pdo,
		'insert into outbox.message (topic, key_bytes, payload_bytes) values (?, ?, ?)', $values, $streams);
	each_value('bytes', "$kind-publish-bytes", $pdo, 'select outbox.publish(?, ?, ?::bytea)', $values, $payload_bytes);

	$pdo->beginTransaction();
	$statement = $pdo->prepare(INSERT . ' returning id, event_id, created_at');
	$statement->execute([$topic, "pdo/$kind-returned/string", $given->text->string]);
	[$id, $event, $created] = $statement->fetch(PDO::FETCH_NUM);
	$pdo->commit();
	$pdo->beginTransaction();
	$statement = $pdo->prepare('select id, created_at from outbox.message_state_of(?)');
	$statement->execute([$event]);
	$statement->fetchAll(PDO::FETCH_NUM) == [[$id, $created]] || throw new Exception("no state of $event");
	$pdo->commit();
	echo "returned $kind-returned\n";

	refused($pdo, "$kind-bytes-as-text", '?::bytea::text');
	if ($kind === 'emulated') { // makes hexadecimal digits of bytes; the others send them as they are
		refused($pdo, "$kind-bytes-in-text-column", '?');
	} else {
		each_value('text', "$kind-bytes-in-text-column", $pdo, INSERT, $all_texts, $payload_bytes);
	}
}

function refused(PDO $pdo, string $way, string $payload): void
{
	global $topic;
	$pdo->beginTransaction();
	try {
		$statement = $pdo->prepare("insert into outbox.message (topic, payload) values (?, $payload)");
		$statement->bindValue(1, $topic);
		$statement->bindValue(2, '{}', PDO::PARAM_LOB);
		$statement->execute();
	} catch (PDOException $error) {
		preg_match('/check constraint "(\w+)"/', $error->getMessage(), $found);
		echo "refused $way $found[1]\n";
	}
	$pdo->rollBack();
}

/* COPY, with the escapes of its text format. */
$pdo = connect([]);
$rows = [];
foreach ($all_texts as $name => $value) {
	$rows[] = implode("\t", array_map(fn($field) => addcslashes($field, "\\\n\r\t"), [$topic, "pdo/copy/$name", $value]));
}
$pdo->pgsqlCopyFromArray('outbox.message (topic, key, payload)', $rows);
echo "text copy\n";

/* Without PDO: pg_query_params sends every value as untyped text. */
$link = pg_connect("host=$given->host port=$given->port dbname=$given->database user=$given->user");
foreach ($all_texts as $name => $value) {
	pg_query_params($link, 'insert into outbox.message (topic, key, payload) values ($1, $2, $3)',
		[$topic, "pdo/pg-query-params/$name", $value]);
}
echo "text pg-query-params\n";
foreach ($values as $name => $value) {
	pg_query_params($link, 'insert into outbox.message (topic, key, payload_bytes) values ($1, $2, $3)',
		[$topic, "pdo/pg-query-params-bytes/$name", pg_escape_bytea($link, $value)]);
}
echo "bytes pg-query-params-bytes\n";
