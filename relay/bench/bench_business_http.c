/* HTTP/1.1: the POST requests of docs/reference/lookback-check.md and, for the sink, of
 * docs/reference/sidecar.md. */
#include "bench_business.h"
#include "bench.h"

#include <jansson.h>
#include <string.h>

static size_t body_length(const char *head, const char *end)
{
	const char *at = strcasestr(head, "\r\ncontent-length:");
	int64_t length = 0;

	if (at && at < end)
		for (at = strchr(at, ':') + 1; *at == ' ' || (*at >= '0' && *at <= '9'); at++)
			length = *at == ' ' ? length : length * 10 + (*at - '0');
	return (size_t)length;
}

static void add_decided_pair(struct text *body, const json_t *pair, const char *decision)
{
	text_addf(body, "{\"biz_id\":\"%s\",\"decision\":\"%s\"}",
	    json_string_value(json_object_get(pair, "biz_id")), decision);
}

static bool answer_http_question(struct bench_peer *peer, const char *bytes, size_t length)
{
	const char *decision = bench_peer_commits(peer) ? "commit" : "rollback";
	json_t *question = json_loadb(bytes, length, 0, NULL);
	const json_t *ids = json_object_get(question, "ids"), *id;
	struct text body = {0}, out = {0};
	size_t index;

	if (!question)
		return false;
	if (ids) {
		json_array_foreach(ids, index, id)
		{
			text_add(&body, index ? "," : "{\"answers\":[");
			add_decided_pair(&body, id, decision);
		}
		text_add(&body, "]}");
	} else {
		add_decided_pair(&body, question, decision);
	}
	json_decref(question);
	text_addf(&out,
	    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
	    body.length, text_string(&body));
	text_finish(&body);
	bench_peer_answer(peer, &out);
	return true;
}

/* The number of messages: one, or the events of a batch. */
static int64_t messages_of(const char *body, size_t length)
{
	static const char mark[] = "\"specversion\"";
	const char *end = body + length;
	int64_t count = 0;

	while ((body = memmem(body, (size_t)(end - body), mark, sizeof mark - 1))) {
		body += sizeof mark - 1;
		count++;
	}
	return count ? count : 1;
}

static bool count_http_messages(struct bench_peer *peer, const char *bytes, size_t length)
{
	/* ab keeps a connection only with this header */
	static const char done[] =
	    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n";

	bench_peer_take(peer, messages_of(bytes, length));
	return bench_peer_write(
	    peer, &(struct text){.data = (char *)done, .length = sizeof done - 1});
}

static bool read_requests(struct bench_peer *peer,
    bool (*answer_one)(struct bench_peer *peer, const char *bytes, size_t length))
{
	while (peer->in.length > 0) {
		const char *head = peer->in.data, *end = strstr(head, "\r\n\r\n");
		size_t before = end ? (size_t)(end - head) + 4 : 0;
		size_t length = end ? body_length(head, end) : 0;

		/* the rest of the request comes with the next bytes */
		if (!end || peer->in.length < before + length)
			return true;
		if (!answer_one(peer, head + before, length))
			return false;
		bench_peer_read(peer, before + length);
	}
	return true;
}

static bool read_questions(struct bench_peer *peer)
{
	return read_requests(peer, answer_http_question);
}

static bool read_messages(struct bench_peer *peer)
{
	return read_requests(peer, count_http_messages);
}

const struct bench_dialect bench_business_http = {.read = read_questions};
const struct bench_dialect bench_business_sink = {.read = read_messages};
