/*
 * The look-back from an application's side: librdkafka, libpq and OpenSSL. docs/guide/lookback.md
 * shows its parts. It answers as a CGI program, so that any HTTP server may stand before it.
 */
#include <errno.h>
#include <librdkafka/rdkafka.h>
#include <libpq-fe.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct shop {
	rd_kafka_t *kafka;
	PGconn *database;
	const char *biz_type;
};

/* snippet: send */
struct prepared {
	const char *topic, *key, *payload;
};

static void on_delivery(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *opaque)
{
	(void)kafka, (void)opaque;
	*(bool *)message->_private = message->err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Waits for all acks, is idempotent, and places keys as Java does: an id has one partition. */
static rd_kafka_t *producer(const char *servers)
{
	static const char *const settings[][2] = {
	    {"acks", "all"}, {"enable.idempotence", "true"}, {"partitioner", "murmur2_random"}};
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char error[256];

	rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof error);
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		rd_kafka_conf_set(conf, settings[i][0], settings[i][1], error, sizeof error);
	rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
	return rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
}

/* op is prepare, or commit or rollback without a message. True: Kafka acknowledged it. */
static bool say(
    struct shop *shop, const char *op, const char *biz_id, const struct prepared *message)
{
	rd_kafka_headers_t *headers;
	const char *payload = message ? message->payload : NULL;
	bool arrived = false;
	char key[512];

	if (snprintf(key, sizeof key, "%s:%s", shop->biz_type, biz_id) >= (int)sizeof key)
		return false;
	headers = rd_kafka_headers_new(8);
	rd_kafka_header_add(headers, "lookback-version", -1, "1", -1);
	rd_kafka_header_add(headers, "lookback-op", -1, op, -1);
	rd_kafka_header_add(headers, "lookback-biz-type", -1, shop->biz_type, -1);
	rd_kafka_header_add(headers, "lookback-biz-id", -1, biz_id, -1);
	if (message) {
		rd_kafka_header_add(headers, "lookback-topic", -1, message->topic, -1);
		rd_kafka_header_add(headers, "lookback-key", -1, message->key, -1);
	}
	if (rd_kafka_producev(shop->kafka, RD_KAFKA_V_TOPIC("look_back_msg"),
		RD_KAFKA_V_KEY(key, strlen(key)), RD_KAFKA_V_HEADERS(headers),
		RD_KAFKA_V_VALUE((void *)payload, payload ? strlen(payload) : 0),
		RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_OPAQUE(&arrived),
		RD_KAFKA_V_END)) {
		rd_kafka_headers_destroy(headers);
		return false;
	}
	while (rd_kafka_flush(shop->kafka, 1000)) /* until it is delivered or has failed */
		;
	return arrived;
}
/* end */

/* snippet: work */
static bool execute(struct shop *shop, const char *statement, const char *wanted)
{
	PGresult *result = PQexec(shop->database, statement);
	bool done = strcmp(PQcmdStatus(result), wanted) == 0; /* COMMIT may answer ROLLBACK */

	PQclear(result);
	return done;
}

/* Sets state to the SQLSTATE of an error, or to "". */
static bool barrier(struct shop *shop, const char *biz_id, char state[6])
{
	const char *parameters[] = {shop->biz_type, biz_id};
	PGresult *result = PQexecParams(
	    shop->database, "select lookback_begin($1, $2)", 2, NULL, parameters, NULL, NULL, 0);
	const char *said = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	bool done = PQresultStatus(result) == PGRES_TUPLES_OK;

	snprintf(state, 6, "%s", said ? said : "");
	PQclear(result);
	return done;
}

/* Call it after the prepare. The work refuses by returning false. */
static bool in_transaction(struct shop *shop, const char *biz_id, bool (*work)(struct shop *))
{
	bool refused, done;
	char state[6];

	if (!execute(shop, "begin", "BEGIN"))
		return false;
	if (!barrier(shop, biz_id, state)) {
		execute(shop, "rollback", "ROLLBACK");
		return strcmp(state, "LB002") == 0 && say(shop, "commit", biz_id, NULL);
	}
	done = work(shop);
	refused = !done && PQtransactionStatus(shop->database) == PQTRANS_INTRANS;
	if (!done && execute(shop, "rollback", "ROLLBACK") && refused)
		say(shop, "rollback", biz_id, NULL);
	/* A commit that fails may have committed: send nothing, the relay asks. */
	return done && execute(shop, "commit", "COMMIT") && say(shop, "commit", biz_id, NULL);
}
/* end */

/* snippet: verify */
struct signature {
	const char *id, *timestamp, *signatures; /* the three headers; NULL: missing */
};

/* Reads "whsec_" and base64. Returns the number of bytes; -1: it is too long. */
static int read_secret(const char *secret, unsigned char key[96])
{
	size_t length = strlen(secret += strlen("whsec_"));

	if (length > 128)
		return -1;
	return EVP_DecodeBlock(key, (const unsigned char *)secret, (int)length) -
	       (length > 0 && secret[length - 1] == '=') -
	       (length > 1 && secret[length - 2] == '=');
}

static bool is_fresh(const char *timestamp)
{
	char *end;

	errno = 0;
	long long sent = strtoll(timestamp, &end, 10);
	return !errno && end != timestamp && !*end && llabs((long long)time(NULL) - sent) <= 300;
}

/* Standard Webhooks: the request is recent, and one signature is of our secret. */
static bool is_signed(
    const char *secret, const struct signature *sent, const char *body, size_t length)
{
	unsigned char key[96], digest[EVP_MAX_MD_SIZE];
	char ours[64] = "v1,";
	int key_length = read_secret(secret, key);
	bool fits = false;
	char *text;
	int head;

	if (key_length < 0 || !sent->id || !sent->timestamp || !sent->signatures ||
	    !is_fresh(sent->timestamp) || !(text = malloc(length + 512)))
		return false;
	head = snprintf(text, 512, "%s.%s.", sent->id, sent->timestamp);
	if (head < 512) {
		memcpy(text + head, body, length);
		HMAC(EVP_sha256(), key, key_length, (unsigned char *)text, (size_t)head + length,
		    digest, NULL);
		EVP_EncodeBlock((unsigned char *)ours + 3, digest, 32);
		for (const char *one = sent->signatures; *one; one += strspn(one, " ")) {
			size_t its = strcspn(one, " ");

			fits |= its == strlen(ours) && CRYPTO_memcmp(one, ours, its) == 0;
			one += its;
		}
	}
	free(text);
	return fits;
}
/* end */

/* snippet: answer */
/* body is a question about one id. The database parses it and builds the answer. */
static bool answer(PGconn *database, const char *body)
{
	PGresult *result = PQexecParams(database,
	    "select json_build_object('biz_id', c.biz_id, 'decision', c.decision)"
	    " from lookback_check($1::json ->> 'biz_type', array[$1::json ->> 'biz_id']) c",
	    1, NULL, &body, NULL, NULL, 0);
	bool done = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;

	if (done)
		printf("Content-Type: application/json\r\n\r\n%s", PQgetvalue(result, 0, 0));
	PQclear(result);
	return done;
}

/* Environment and standard input are those of a CGI program. */
static bool serve(const char *dsn, const char *secret)
{
	struct signature sent = {getenv("HTTP_WEBHOOK_ID"), getenv("HTTP_WEBHOOK_TIMESTAMP"),
	    getenv("HTTP_WEBHOOK_SIGNATURE")};
	char body[65536];
	size_t length = fread(body, 1, sizeof body - 1, stdin);
	PGconn *database;
	bool done;

	body[length] = '\0';
	if (!is_signed(secret, &sent, body, length)) {
		printf("Status: 401 Unauthorized\r\n\r\n");
		return true;
	}
	database = PQconnectdb(dsn);
	done = answer(database, body);
	PQfinish(database);
	return done;
}
/* end */

static bool insert(struct shop *shop)
{
	return execute(shop, "insert into work values (1)", "INSERT 0 1");
}

static bool refuse(struct shop *shop)
{
	insert(shop);
	return false;
}

/* One that is committed, one that is refused, one that is prepared and no more. */
static bool take(struct shop *shop)
{
	static const char *const ids[] = {"good", "bad", "left"};
	char payload[64];
	bool done = PQstatus(shop->database) == CONNECTION_OK;

	for (int i = 0; done && i < 3; i++) {
		snprintf(payload, sizeof payload, "of %s", ids[i]);
		done = say(shop, "prepare", ids[i],
		    &(const struct prepared){"orders", shop->biz_type, payload});
	}
	return done && in_transaction(shop, "good", insert) && !in_transaction(shop, "bad", refuse);
}

/* send SERVERS DSN TYPE, or serve DSN SECRET: see tests/integration/test_guide.py */
int main(int count, char **arguments)
{
	if (count == 4 && strcmp(arguments[1], "serve") == 0)
		return !serve(arguments[2], arguments[3]);
	if (count != 5)
		return 2;

	struct shop shop = {producer(arguments[2]), PQconnectdb(arguments[3]), arguments[4]};
	bool done = take(&shop);

	rd_kafka_destroy(shop.kafka);
	PQfinish(shop.database);
	return !done;
}
