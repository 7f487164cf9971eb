/* grpc: a unary call of lookback.v1.Checker/Check (docs/reference/lookback.proto,
 * docs/reference/lookback-check.md). */
#include <string.h>
#include <strings.h>
#include "checker.pb-c.h"
#include "cleanup.h"
#include "transport_web.h"

enum {
	FRAME = 5, /* before a message: whether it is compressed, and its length */
	GRPC_OK = 0,
	MOST_STATUS = 9999,
};

static const char method[] = "/lookback.v1.Checker/Check";

static const char *const status_names[] = {"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};
enum { STATUS_NAMES = sizeof status_names / sizeof *status_names };

/* --- the question --------------------------------------------------------------------------- */

static bool locate_grpc(const char *url, struct text *ret_url, struct err *err)
{
	size_t length = strlen(url);

	if (strpbrk(url, "?#"))
		return err_set(err, ERR_REJECT, "the URL of a gRPC service has no query");
	while (length && url[length - 1] == '/')
		length--;
	text_append(ret_url, url, length);
	text_add(ret_url, method);
	return true;
}

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
}

static void add_grpc_frame(struct text *body, size_t length)
{
	const char frame[FRAME] = {
	    0, (char)(length >> 24), (char)(length >> 16), (char)(length >> 8), (char)length};

	text_append(body, frame, sizeof frame);
}

static void write_grpc_question(const struct check_question *question, struct text *ret_body)
{
	const size_t count = (size_t)question->id_count;
	Lookback__V1__CheckRequest request = LOOKBACK__V1__CHECK_REQUEST__INIT;
	owned_text Lookback__V1__CheckId *ids = xcalloc(count, sizeof *ids);
	owned_text Lookback__V1__CheckId **list = xcalloc(count, sizeof *list);

	for (size_t i = 0; i < count; i++) {
		lookback__v1__check_id__init(&ids[i]);
		ids[i].biz_id = bytes_of(question->ids[i].biz_id);
		ids[i].attempt = question->ids[i].attempt;
		ids[i].prepared_at = bytes_of(question->ids[i].prepared_at);
		list[i] = &ids[i];
	}
	request.biz_type = bytes_of(question->biz_type);
	request.n_ids = count;
	request.ids = list;
	size_t length = lookback__v1__check_request__get_packed_size(&request);
	owned_text uint8_t *packed = xmalloc(length);
	lookback__v1__check_request__pack(&request, packed);
	add_grpc_frame(ret_body, length);
	text_append(ret_body, (const char *)packed, length);
}

/* --- the answer ----------------------------------------------------------------------------- */

static enum check_word word_of_decision(Lookback__V1__Decision decision)
{
	static const enum check_word words[] = {
	    [LOOKBACK__V1__DECISION__DECISION_UNKNOWN] = CHECK_UNKNOWN,
	    [LOOKBACK__V1__DECISION__DECISION_PENDING] = CHECK_PENDING,
	    [LOOKBACK__V1__DECISION__DECISION_COMMIT] = CHECK_COMMIT,
	    [LOOKBACK__V1__DECISION__DECISION_ROLLBACK] = CHECK_ROLLBACK,
	};
	size_t number = (size_t)decision;

	return number < sizeof words / sizeof *words ? words[number] : CHECK_WORDS;
}

static void read_message(struct reply *reply, const uint8_t *bytes, size_t length)
{
	Lookback__V1__CheckResponse *message =
	    lookback__v1__check_response__unpack(NULL, length, bytes);
	bool good = message;

	if (!message)
		reply_fail(reply, "answer", "it answers with what is no CheckResponse");
	/* One wrong element ends it: then no word of the answer counts. */
	for (size_t i = 0; good && i < message->n_answers; i++) {
		const Lookback__V1__CheckAnswer *answer = message->answers[i];
		good = reply_add(reply, (const char *)answer->biz_id.data, answer->biz_id.len,
		    word_of_decision(answer->decision));
	}
	if (good)
		reply_read(reply);
	if (message)
		lookback__v1__check_response__free_unpacked(message, NULL);
}

/* A compressed message is refused: we never offered to read one. */
void transport_grpc_read(struct reply *reply, const char *bytes, size_t length)
{
	const uint8_t *body = (const uint8_t *)bytes;
	size_t own = 0;

	for (int i = 1; length >= FRAME && i < FRAME; i++)
		own = own << 8 | body[i];
	if (length < FRAME || length - FRAME != own)
		reply_fail(
		    reply, "answer", "it answers with %zu bytes that are not one message", length);
	else if (body[0])
		reply_fail(reply, "answer", "its message is compressed");
	else
		read_message(reply, body + FRAME, own);
}

/*
 * An answer has its status in the trailers; only an answer without a message may have it in the
 * headers.
 */
static const char *find_status(const struct http_response *response, const char *name)
{
	const char *trailer = http_response_trailer(response, name);

	return trailer || response->body_length ? trailer : http_response_header(response, name);
}

static void read_grpc_status(struct reply *reply, const struct http_response *response)
{
	const char *text = find_status(response, "grpc-status");
	const char *message = find_status(response, "grpc-message");
	int64_t pause, status;

	if (!text || !text_to_int64(text, 0, MOST_STATUS, &status)) {
		reply_fail(reply, "answer", "its answer ends without a grpc-status");
		return;
	}
	reply->answer.status = (int)status;
	text = find_status(response, "grpc-retry-pushback-ms");
	if (text && text_to_int64(text, 0, INT32_MAX, &pause))
		reply->answer.retry_after_ms = pause;
	text = http_response_header(response, "grpc-encoding");
	if (status == GRPC_OK && text && response->body_length && response->body[0])
		reply_fail(reply, "answer",
		    "its message is compressed (%.40s), and the relay asked for no compression",
		    text);
	else if (status == GRPC_OK)
		transport_grpc_read(reply, response->body, response->body_length);
	else
		reply_fail(reply, "status", "it answers with gRPC status %d %s%s%.200s",
		    (int)status, status < STATUS_NAMES ? status_names[status] : "",
		    message ? ": " : "", message ? message : "");
}

/* "application/grpc", also with "+proto" or parameters. */
static bool is_grpc(const char *type)
{
	static const char name[] = "application/grpc";
	static const size_t length = sizeof name - 1;

	return type && strncasecmp(type, name, length) == 0 &&
	       (!type[length] || strchr("+; \t", type[length]));
}

static void read_grpc_response(struct reply *reply, const struct http_response *response)
{
	if (response->status != 200)
		reply_fail(reply, "status",
		    "it answers with status %d of HTTP, which is none of "
		    "gRPC's",
		    response->status);
	else if (!is_grpc(http_response_header(response, "Content-Type")))
		reply_fail(reply, "answer",
		    "the Content-Type of its answer is not "
		    "application/grpc");
	else
		read_grpc_status(reply, response);
}

static bool is_grpc_service_well(const struct reply *reply, const struct http_response *response)
{
	static const char *const ailing[] = {"UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED",
	    "INTERNAL", "UNAVAILABLE", "DATA_LOSS"};
	int status = reply->answer.status;

	if (response->status != 200)
		return response->status < 500 && response->status != 429;
	if (status >= STATUS_NAMES)
		return true; /* 200 of HTTP: it told none of its own */
	for (size_t i = 0; i < sizeof ailing / sizeof *ailing; i++)
		if (text_equal(ailing[i], status_names[status]))
			return false;
	return true;
}

/* --- the row -------------------------------------------------------------------------------- */

static const struct http_header headers[] = {
    {"Content-Type", "application/grpc"}, {"TE", "trailers"}};

static const struct web_dialect dialect = {
    .protocol = HTTP_2,
    .takes_services = true,
    .headers = headers,
    .header_count = 2,
    .timeout_header = "grpc-timeout",
    .locate = locate_grpc,
    .write = write_grpc_question,
    .unsigned_bytes = FRAME,
    .read = read_grpc_response,
    .is_well = is_grpc_service_well,
};

static struct transport *open_grpc(const struct config_check *check, struct err *err)
{
	return web_open(&dialect, check, err);
}

static bool check_grpc(const struct config_check *check, struct err *err)
{
	return web_check(&dialect, check, err);
}

const struct transport_kind transport_grpc = {.open = open_grpc,
    .check = check_grpc,
    .close = web_close,
    .ask = web_ask,
    .fd = web_fd,
    .deadline = web_deadline,
    .step = web_step,
    .take = web_take,
    .release = web_release,
    .addresses = web_addresses};
