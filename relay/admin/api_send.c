/*
 * Prepare, commit and rollback: the body's messages become records as they were written, with the
 * op of the path if they do not say it themselves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "api_private.h"
#include "cleanup.h"
#include "clock.h"
#include "json_slice.h"
#include "sql_files.h"

enum {
	MOST_MESSAGES = 10000,
	/* limits of JSON: those of one message, and two levels more for a batch */
	DEEPEST = 102,
	MOST_VALUES = 1000000,
	LOOK_UP_MS = 1500, /* for the look-up of taken ids; later, records are sent unchecked */
};

/* One message and its outcome. */
struct item {
	struct api_call *call;
	struct api_record record;  /* until it is put */
	struct api_sender *sender; /* NULL: refused before */
	const char *topic;
	struct api_database
	    *database; /* of a prepare: asked whether its id is taken; NULL: no need to ask */
	char *biz_type, *biz_id;
	unsigned char id[UUID_BYTES], digest[LOOKBACK_DIGEST];
	bool taken;
	const char *code; /* NULL: acknowledged */
	char *error;
	int32_t partition;
	int64_t offset;
};

/* One look-up in one database, for all items of it. */
struct look_up {
	struct api_question question;
	struct api_database *database;
	struct work *work;
};

struct work {
	bool is_batch;
	int count;
	struct look_up *look_ups;
	int look_up_count;
	atomic_int looking;
	struct item items[];
};

static void refuse_item(struct item *item, const char *code, const char *error)
{
	item->code = code;
	item->error = xstrdup(error);
}

/* The first message with an id keeps it. A repetition of that message has the same digest. */
static void refuse_taken(struct item *item)
{
	refuse_item(item, "id_taken",
	    "another message was prepared with this business type and id before; give each "
	    "message an id of its own");
}

/* --- one message ----------------------------------------------------------------------------- */

/* The text with the op in front of its other members; the caller frees. */
static char *with_op(const char *text, size_t length, const char *op, size_t *ret_length)
{
	size_t blanks = strspn(text + 1, " \t\r\n"); /* behind the brace */
	bool is_empty = text[1 + blanks] == '}';
	char *whole =
	    xformat("{\"op\":\"%s\"%s%.*s", op, is_empty ? "" : ",", (int)length - 1, text + 1);

	*ret_length = strlen(whole);
	return whole;
}

static char *copy_member_text(const char *text, size_t length, size_t *ret_length)
{
	*ret_length = length;
	return lookback_bytes_copy(text, length).bytes;
}

static bool agrees_with_verb(
    const struct api_call *call, const struct lookback_request *request, struct item *item)
{
	char text[200];

	if (request->op == call->verb->op)
		return true;
	snprintf(text, sizeof text,
	    "op is %s in a request to %s; leave it out, or use the path of the op",
	    lookback_op_names[request->op], call->verb->name);
	refuse_item(item, "op_mismatch", text);
	return false;
}

/*
 * The reader would dead-letter a message that is too long for the tables, and its sender would
 * never know.
 */
static bool fits_tables(const struct api_call *call, const struct lookback_request *request,
    const struct config_lookback *section, struct item *item)
{
	int64_t most = api_database_payload_most(api_database_of(call->api, section->postgres));
	char text[200];

	if (request->op != LOOKBACK_PREPARE ||
	    (most >= 0 && request->payload.length <= (size_t)most))
		return true;
	if (most < 0) {
		refuse_item(item, "no_database",
		    "the relay does not know the longest payload of the tables yet; try again");
		return false;
	}
	snprintf(text, sizeof text,
	    "the payload has %zu bytes, and the tables take %" PRId64
	    "; migrate up --max-message-bytes raises this limit",
	    request->payload.length, most);
	refuse_item(item, "payload_too_large", text);
	return false;
}

static bool judge_request(
    const struct api_call *call, const struct lookback_request *request, struct item *item)
{
	const struct config_lookback *section =
	    route_section(api_route(call->api), request->biz_type);
	struct refusal refusal;

	/* first: a caller without a right to the type learns nothing of its rules */
	if (section &&
	    !config_token_has_type(&call->caller->token, section->name, request->biz_type)) {
		refusal_set(&refusal, "out_of_scope",
		    "[token \"%s\"] is not for the business type %s", call->caller->token.name,
		    request->biz_type);
		refuse_item(item, refusal.code, refusal.text);
		return false;
	}
	if (!route_judge(api_route(call->api), request, &section, &refusal)) {
		refuse_item(item, refusal.code, refusal.text);
		return false;
	}
	if (!fits_tables(call, request, section, item))
		return false;
	item->topic = section->topic;
	item->sender = api_sender_of(call->api, section->kafka);
	return true;
}

static void on_record_done(void *context, const struct api_outcome *outcome)
{
	struct item *item = context;

	item->partition = outcome->partition;
	item->offset = outcome->offset;
	/* a record that was given up may be in the topic, and its id stays taken */
	if (item->database && outcome->code && !text_equal(outcome->code, "no_acknowledgement") &&
	    !text_equal(outcome->code, "no_topic"))
		api_database_unclaim(item->database, item->id);
	if (outcome->code)
		refuse_item(item, outcome->code, outcome->text);
	api_part_done(item->call);
}

/* False: this process sent another prepare with the id a moment ago. */
static bool claim_id(
    const struct api_call *call, const struct lookback_request *request, struct item *item)
{
	const struct config_lookback *section =
	    route_section(api_route(call->api), request->biz_type);

	/* Decisions may repeat and contradict each other; the first one wins. */
	if (request->op != LOOKBACK_PREPARE)
		return true;
	lookback_event_id(request->biz_type, request->biz_id, item->id);
	memcpy(item->digest, request->digest, LOOKBACK_DIGEST);
	if (!api_database_claim(
		api_database_of(call->api, section->postgres), item->id, item->digest)) {
		refuse_taken(item);
		item->sender = NULL;
		return false;
	}
	item->database = api_database_of(call->api, section->postgres);
	item->biz_type = xstrdup(request->biz_type);
	item->biz_id = xstrdup(request->biz_id);
	return true;
}

/* The text is an object, in JSON that was parsed. */
static void read_object(struct item *item, const char *text, size_t length)
{
	struct api_call *call = item->call;
	struct lookback_input input = {.is_body = true};
	struct lookback_request request;
	struct refusal refusal;
	size_t ignored;
	char *value = json_slice(text, length, "op", &ignored)
			  ? copy_member_text(text, length, &input.value_length)
			  : with_op(text, length, call->verb->name, &input.value_length);

	input.value = value;
	if (!lookback_wire_read(&input, &request, &refusal)) {
		refuse_item(item, refusal.code, refusal.text);
	} else if (agrees_with_verb(call, &request, item) && judge_request(call, &request, item) &&
		   claim_id(call, &request, item)) {
		item->record = (struct api_record){.topic = item->topic,
		    .key = lookback_wire_key(&request),
		    .value = value,
		    .length = input.value_length,
		    .done = on_record_done,
		    .context = item};
		value = NULL;
	}
	lookback_request_finish(&request);
	free(value);
}

static void read_message_item(struct item *item, const char *text, size_t length)
{
	if (length > 0 && *text == '{')
		read_object(item, text, length);
	else
		refuse_item(item, "bad_json", "the message is no JSON object");
}

/* --- the body -------------------------------------------------------------------------------- */

static struct work *work_create(struct api_call *call, size_t count, bool is_batch)
{
	struct work *work = xcalloc(1, sizeof *work + count * sizeof *work->items);

	work->is_batch = is_batch;
	work->count = (int)count;
	for (size_t i = 0; i < count; i++)
		work->items[i].call = call;
	call->work = work;
	return work;
}

static size_t count_elements(const char *array, size_t length)
{
	size_t count = 0, offset = 0, ignored;

	while (json_slice_next(array, length, &offset, &ignored))
		count++;
	return count;
}

static void read_message_batch(struct api_call *call, const struct json_member *list)
{
	size_t count, length, offset = 0;
	struct work *work;

	/*
	 * Counted first, so that the items are one allocation whose addresses stay: look-ups and
	 * records point to them.
	 */
	count = count_elements(list->value, list->value_length);
	if (count == 0 || count > MOST_MESSAGES)
		return api_refuse(call, 400, "bad_batch",
		    "a batch has 1 to %d messages, and this one %zu", MOST_MESSAGES, count);
	work = work_create(call, count, true);
	for (size_t i = 0; i < count; i++) {
		const char *text =
		    json_slice_next(list->value, list->value_length, &offset, &length);

		read_message_item(&work->items[i], text, length);
	}
}

/* Blanks before the object are skipped, since the op is inserted behind the first brace. */
static void read_single(struct api_call *call)
{
	size_t blanks = strspn(call->body.data, " \t\r\n");

	read_message_item(&work_create(call, 1, false)->items[0], call->body.data + blanks,
	    call->body.length - blanks);
}

/* The array of a batch. False: its object has another member, or it is no array; refused. */
static bool find_list(struct api_call *call, struct json_member *ret_list)
{
	struct json_member member;
	size_t offset = 0, count = 0;

	while (json_member_next(call->body.data, call->body.length, &offset, &member)) {
		if (!json_member_is(&member, "messages") || *member.value != '[' || count++ > 0) {
			api_refuse(call, 400, "bad_batch",
			    "a batch is an object with one member, an array: {\"messages\": "
			    "[...]}; %.*s is another member, or no array",
			    (int)(member.name_length < 60 ? member.name_length : 60), member.name);
			return false;
		}
		*ret_list = member;
	}
	return true;
}

static void read_body(struct api_call *call)
{
	static const struct json_limits limits = {DEEPEST, MOST_VALUES};
	struct json_member list = {0};
	size_t ignored;

	if (!api_check_object(call, &limits))
		return;
	if (!json_slice(call->body.data, call->body.length, "messages", &ignored))
		read_single(call);
	else if (find_list(call, &list))
		read_message_batch(call, &list);
}

static int parts_of(const struct work *work)
{
	int count = 0;

	for (int i = 0; i < work->count; i++)
		count += work->items[i].sender != NULL;
	return count;
}

/* In the order of the batch, which is that of the records of an id. */
static void put_items(struct work *work)
{
	int64_t give_up_ms = clock_ms() + API_SEND_MS;

	for (int i = 0; i < work->count; i++) {
		struct item *item = &work->items[i];

		item->record.give_up_ms = give_up_ms;
		if (item->sender)
			api_sender_put(item->sender, &item->record);
	}
}

/* --- is the id taken ------------------------------------------------------------------------- */

/* [[place, digest], …] by the places of its own list. */
static void read_taken(const struct look_up *look_up)
{
	json_t *list = look_up->question.json ? json_loads(look_up->question.json, 0, NULL) : NULL;
	struct work *work = look_up->work;
	json_int_t place = 0, found_place;
	const char *found;
	size_t next = 0;

	for (int i = 0; i < work->count; i++) {
		struct item *item = &work->items[i];
		unsigned char digest[LOOKBACK_DIGEST];

		if (item->database != look_up->database)
			continue;
		place++;
		/* Ids that nobody prepared have no row; the others come in this order. */
		if (json_unpack(json_array_get(list, next), "[I,s]", &found_place, &found) != 0 ||
		    found_place != place)
			continue;
		next++;
		/* The same digest is a repetition of the same message, which does no harm. */
		item->taken = !hex_read(found, LOOKBACK_DIGEST, digest) ||
			      memcmp(digest, item->digest, LOOKBACK_DIGEST) != 0;
	}
	json_decref(list);
}

/* Answers the items whose ids are taken, and sends the others. */
static void send_free(struct work *work)
{
	struct api_call *call = work->items[0].call;
	int taken = 0;

	for (int i = 0; i < work->look_up_count; i++)
		read_taken(&work->look_ups[i]);
	for (int i = 0; i < work->count; i++) {
		struct item *item = &work->items[i];

		if (!item->taken)
			continue;
		/* This prepare never goes out. The id stays taken by the row in the database. */
		api_database_unclaim(item->database, item->id);
		free(item->record.key);
		free(item->record.value);
		item->sender = NULL;
		refuse_taken(item);
		taken++;
	}
	put_items(work);
	/* The last part is ours: after it the call may be gone. */
	while (taken-- > 0)
		api_part_done(call);
	api_part_done(call);
}

static void on_looked_up(void *context)
{
	struct work *work = context;

	if (atomic_fetch_sub(&work->looking, 1) == 1)
		send_free(work);
}

static struct look_up *look_up_in(struct work *work, struct api_database *database)
{
	for (int i = 0; i < work->look_up_count; i++)
		if (work->look_ups[i].database == database)
			return &work->look_ups[i];
	work->look_ups[work->look_up_count] = (struct look_up){.database = database, .work = work};
	return &work->look_ups[work->look_up_count++];
}

/* NULL: there are none of this database. */
static char *ids_json(const struct work *work, const struct api_database *database)
{
	json_t *list = json_array();
	char *text;

	for (int i = 0; i < work->count; i++)
		if (work->items[i].database == database)
			json_array_append_new(list,
			    json_pack("[s,s]", work->items[i].biz_type, work->items[i].biz_id));
	text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

/*
 * If a database does not answer in time, the records are sent all the same: the reader finds two
 * different prepares of one id later, as it does with those that come by Kafka.
 */
static void look_up_ids(struct work *work)
{
	int count;

	work->look_ups = xcalloc((size_t)work->count + 1, sizeof *work->look_ups);
	for (int i = 0; i < work->count; i++)
		if (work->items[i].database)
			look_up_in(work, work->items[i].database);
	count = work->look_up_count;
	/* One more for this loop: an early answer must not send before all are asked for. */
	atomic_store(&work->looking, count + 1);
	for (int i = 0; i < count; i++) {
		struct look_up *look_up = &work->look_ups[i];

		look_up->question = (struct api_question){.sql = sql_api_lookback_taken,
		    .params = {ids_json(work, look_up->database)},
		    .param_count = 1,
		    .give_up_ms = clock_ms() + LOOK_UP_MS,
		    .done = on_looked_up,
		    .context = work};
		if (!api_database_ask(look_up->database, &look_up->question))
			atomic_fetch_sub(&work->looking, 1);
	}
	on_looked_up(work);
}

void api_send_begin(struct api_call *call)
{
	int parts;

	read_body(call);
	if (call->status)
		return;
	text_finish(&call->body); /* the records have what is needed */
	call->body = (struct text){0};
	parts = parts_of(call->work);
	/* Every message was refused: nothing would resume the call. */
	if (parts == 0)
		return api_send_finish(call);
	api_wait(call, parts + 1); /* and one for the look-up */
	look_up_ids(call->work);
}

/* --- the answer ------------------------------------------------------------------------------ */

static unsigned status_of(const struct item *item)
{
	return item->code ? api_problem_status(item->code) : 202;
}

static json_t *json_of_acknowledged(const struct item *item)
{
	return json_pack("{s:s, s:i, s:I}", "topic", item->topic, "partition", item->partition,
	    "offset", (json_int_t)item->offset);
}

static void count_items(const struct api_call *call, const struct work *work)
{
	for (int i = 0; i < work->count; i++) {
		const char *code = work->items[i].code;

		metric_add(METRIC_LABELLED(api_metrics(call->api)->messages, call->verb->name,
			       code ? code : "acknowledged"),
		    1);
	}
}

/*
 * The status that all items have, or 207 if they differ. If all are refused for good, it is 400 if
 * one of them has it, otherwise the first one's.
 */
static unsigned status_of_all(const struct work *work)
{
	unsigned first = status_of(&work->items[0]);
	bool differ = false, refused = true, bad = false;

	for (int i = 0; i < work->count; i++) {
		unsigned status = status_of(&work->items[i]);

		differ |= status != first;
		refused &= status >= 400 && status < 500;
		bad |= status == 400;
	}
	if (differ && !refused)
		return 207;
	return bad ? 400 : first;
}

static json_t *json_of_result(const struct item *item)
{
	unsigned status = status_of(item);
	json_t *result;

	if (item->code)
		return api_problem(item->code, status, item->error, NULL);
	result = json_of_acknowledged(item);
	json_object_set_new(result, "status", json_integer((json_int_t)status));
	return result;
}

static void answer_batch(struct api_call *call)
{
	const struct work *work = call->work;
	unsigned status = status_of_all(work);
	json_t *answer =
	    status < 400 ? json_object()
			 : api_problem("batch_refused", status,
			       "each message was refused; its result says why", call->request_id);
	json_t *results = json_array();

	for (int i = 0; i < work->count; i++)
		json_array_append_new(results, json_of_result(&work->items[i]));
	json_object_set_new(answer, "results", results);
	api_answer(call, status, answer);
}

void api_send_finish(struct api_call *call)
{
	const struct work *work = call->work;
	const struct item *first = &work->items[0];

	count_items(call, work);
	if (work->is_batch)
		answer_batch(call);
	else if (first->code)
		api_refuse(call, status_of(first), first->code, "%s", first->error);
	else
		api_answer(call, status_of(first), json_of_acknowledged(first));
}

void api_send_forget(struct api_call *call)
{
	struct work *work = call->work;

	for (int i = 0; i < work->count; i++) {
		free(work->items[i].error);
		free(work->items[i].biz_type);
		free(work->items[i].biz_id);
	}
	for (int i = 0; i < work->look_up_count; i++)
		api_question_finish(&work->look_ups[i].question);
	free(work->look_ups);
	free(work);
}
