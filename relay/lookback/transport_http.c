/*
 * http: a POST with JSON (docs/reference/lookback-check.md). Begin at read_http_response, which
 * reads the decisions of an answer; check_verdict.c judges them.
 */
#include <ctype.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>
#include "transport_web.h"

/* --- the question --------------------------------------------------------------------------- */

static bool locate_http(const char *url, struct text *ret_url, struct err *err)
{
	(void)err;
	text_add(ret_url, url);
	return true;
}

static void add_question_id(json_t *object, const struct check_id *id)
{
	json_object_set_new(object, "biz_id", json_string(id->biz_id));
	json_object_set_new(object, "attempt", json_integer(id->attempt));
	json_object_set_new(object, "prepared_at", json_string(id->prepared_at));
}

static void write_http_question(const struct check_question *question, struct text *ret_body)
{
	json_t *object = json_object();
	char *body;

	json_object_set_new(object, "biz_type", json_string(question->biz_type));
	if (question->id_count == 1) {
		add_question_id(object, question->ids);
	} else {
		json_t *ids = json_array();
		for (int i = 0; i < question->id_count; i++) {
			json_t *id = json_object();
			add_question_id(id, &question->ids[i]);
			json_array_append_new(ids, id);
		}
		json_object_set_new(object, "ids", ids);
	}
	body = json_dumps(object, JSON_COMPACT);
	text_add(ret_body, body);
	free(body);
	json_decref(object);
}

/* --- the answer ----------------------------------------------------------------------------- */

static bool is_json_answer(const char *type)
{
	static const char name[] = "application/json";
	static const size_t length = sizeof name - 1;

	if (!type || strncasecmp(type, name, length) != 0)
		return false;
	type += length + strspn(type + length, " \t");
	return !*type || *type == ';';
}

/* {"biz_id": "…", "decision": "…"}, and nothing else in it. */
static bool read_pair(struct reply *reply, const json_t *pair)
{
	const json_t *id = json_object_get(pair, "biz_id");
	const json_t *word = json_object_get(pair, "decision");

	if (!json_is_string(id) || !json_is_string(word) || json_object_size(pair) != 2)
		return reply_fail(reply, "answer",
		    "it answers with JSON that is not biz_id and decision, both strings");
	return reply_add(reply, json_string_value(id), json_string_length(id),
	    check_word_of(json_string_value(word), json_string_length(word)));
}

static bool read_pairs(struct reply *reply, const json_t *object)
{
	const json_t *answers = json_object_get(object, "answers");
	const json_t *pair;
	size_t index;

	if (!json_is_array(answers) || json_object_size(object) != 1)
		return reply_fail(reply, "answer",
		    "it was called about several ids, and answers with JSON without answers, an "
		    "array");
	json_array_foreach(answers, index, pair)
	{
		if (!read_pair(reply, pair))
			return false;
	}
	return true;
}

void transport_http_read(struct reply *reply, const char *bytes, size_t length)
{
	json_error_t why;
	json_t *body = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &why);

	/* The error does not repeat the body, which may hold anything. */
	if (!body)
		reply_fail(reply, "answer",
		    "it answers with what is no JSON: line %d, column %d of %zu bytes", why.line,
		    why.column, length);
	else if (reply->question->id_count == 1 ? read_pair(reply, body) : read_pairs(reply, body))
		reply_read(reply);
	json_decref(body);
}

static void read_http_response(struct reply *reply, const struct http_response *response)
{
	const char *encoding = http_response_encoding(response);

	/* Only 200 counts: the page of another status may hold a word, too. */
	if (response->status != 200)
		reply_fail(reply, "status", "it answers with status %d", response->status);
	else if (encoding)
		reply_fail(reply, "answer",
		    "its answer is encoded (%.40s), and the relay asked for no encoding", encoding);
	else if (!is_json_answer(http_response_header(response, "Content-Type")))
		reply_fail(reply, "answer",
		    "the Content-Type of its answer is not "
		    "application/json");
	else
		transport_http_read(reply, response->body, response->body_length);
}

static bool is_http_service_well(const struct reply *reply, const struct http_response *response)
{
	(void)reply;
	return response->status < 500 && response->status != 429;
}

/* --- the row -------------------------------------------------------------------------------- */

static const struct http_header headers[] = {
    {"Content-Type", "application/json"}, {"Accept", "application/json"}};

static const struct web_dialect dialect = {
    .protocol = HTTP_1_1,
    .headers = headers,
    .header_count = 2,
    .locate = locate_http,
    .write = write_http_question,
    .read = read_http_response,
    .is_well = is_http_service_well,
};

static struct transport *open_http(const struct config_check *check, struct err *err)
{
	return web_open(&dialect, check, err);
}

static bool check_http(const struct config_check *check, struct err *err)
{
	return web_check(&dialect, check, err);
}

const struct transport_kind transport_http = {.open = open_http,
    .check = check_http,
    .close = web_close,
    .ask = web_ask,
    .fd = web_fd,
    .deadline = web_deadline,
    .step = web_step,
    .take = web_take,
    .release = web_release};
