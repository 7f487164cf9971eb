/*
 * Dead letters of a [deliver] section: a page of them, and their return to their topics (redrive).
 * [the section and the filter] reads what both have in common, [the list] shows, [the selection]
 * reads an order, [preview] counts and makes a token, [redrive] sends back chosen ones and stores
 * an order about all that match as a job (relay/daemon/redrives.c).
 *
 * A token has the end of each partition as the preview found it, behind a slash, so that dead
 * letters that came later are left alone. A process without a database has no jobs: it sends back a
 * batch. Kafka notes which ones went back, so such an order can be repeated with one token until
 * none is left.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "api_arguments.h"
#include "api_export.h"
#include "api_orders.h"
#include "api_look.h"
#include "api_preview.h"
#include "cleanup.h"
#include "consumer.h"
#include "field_json.h"
#include "hex.h"
#include "logging.h"
#include "moment.h"
#include "redrive_choice.h"
#include "redrive_row.h"

enum {
	PAGE = 100,
	MOST_ROWS = 1000,
	MOST_PLACES = 1000,
	SAMPLE = 10,
	BATCH = 10000,
	READ_MS = 5000,
	PAGE_BYTES = 4 << 20, /* of payloads */
	MOST_CALLS = 2,       /* the other threads serve databases */
};

DEFINE_OWNED(struct redrive, redrive_close)

/* Calls that read Kafka now, and whether one of them sends. */
static atomic_int calls_reading;
static atomic_flag is_sending = ATOMIC_FLAG_INIT;

struct letters {
	const struct config_deliver *section;
	struct redrive_choice choice;
	/* the list */
	struct redrive_place from;
	int64_t limit, bytes;
	bool payloads;
	json_t *rows;
	/* an order */
	json_t *body, *section_name, *chosen, *places, *reason, *token; /* of the body */
	struct redrive_place place_list[MOST_PLACES];
	char *selection;
	const char *ends; /* of the token */
	int64_t total;    /* that the preview counted */
	int64_t job, audit;
};

/* --- the section and the filter -------------------------------------------------------------- */

/* The section of this name, or the only one that has dead letters. NULL: refused. */
static const struct config_deliver *dead_letter_section(struct api_call *call, const char *name)
{
	const struct config *config = api_config(call->api);
	const struct config_deliver *found = NULL;
	int count = 0;

	for (int i = 0; i < config->deliver_count; i++) {
		const struct config_deliver *section = &config->delivers[i];

		if (name ? text_equal(section->name, name)
			 : section->dead_letter_topic[0] != '\0') {
			found = section;
			count++;
		}
	}
	if (!found && name)
		api_refuse(call, 404, "unknown_section",
		    "section: the configuration has no [deliver \"%.60s\"]", name);
	else if (count == 0)
		api_refuse(call, 404, "unknown_section",
		    "no [deliver] section of the configuration has a dead_letter_topic");
	else if (count != 1)
		api_refuse(call, 409, "ambiguous",
		    "%d [deliver] sections have a dead_letter_topic: name one with section", count);
	else if (!config_token_has_section(&call->caller->token, found->name))
		api_refuse_scope(call, "the section", found->name);
	else if (!found->dead_letter_topic[0])
		api_refuse(call, 409, "not_applicable", "[deliver \"%s\"] has no dead_letter_topic",
		    found->name);
	else
		return found;
	return NULL;
}

/* A member of the filter. False: refused. */
static bool choose_letters(
    struct api_call *call, struct letters *letters, const char *name, const char *value)
{
	struct err err;

	if (redrive_choice_add(&letters->choice, name, value, &err))
		return true;
	api_refuse(call, 400, "bad_value", "%s", err.message);
	return false;
}

static struct letters *letters_create(struct api_call *call)
{
	struct letters *letters = xcalloc(1, sizeof *letters);

	redrive_choice_init(&letters->choice);
	letters->limit = PAGE;
	call->work = letters;
	return letters;
}

void api_dead_letters_forget(struct api_call *call)
{
	struct letters *letters = call->work;

	redrive_choice_finish(&letters->choice);
	json_decref(letters->body);
	free(letters->selection);
	free(letters);
}

/* False: refused. True: end_kafka_call must follow. */
static bool begin_kafka_call(struct api_call *call)
{
	/* a file that has begun would break off */
	if (atomic_fetch_add(&calls_reading, 1) < MOST_CALLS || api_export_goes_on(call))
		return true;
	atomic_fetch_sub(&calls_reading, 1);
	api_refuse(call, 503, "busy", "%d calls read dead letters already: try again", MOST_CALLS);
	return false;
}

static void end_kafka_call(void)
{
	atomic_fetch_sub(&calls_reading, 1);
}

static void refuse_letters(struct api_call *call, const struct err *err)
{
	log_warn("api_kafka_failed", {"verb", LOG_TEXT(call->verb->name)},
	    {"request", LOG_TEXT(call->request_id)}, {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("the request is answered with an error")});
	if (err->kind == ERR_REJECT)
		api_refuse(call, 409, "not_applicable", "%s", err->message);
	else
		api_refuse(call, 503, "no_kafka", "%s", err->message);
}

/* --- the list -------------------------------------------------------------------------------- */

static json_t *letter_text_json(const char *text)
{
	return text ? api_text(text) : json_null();
}

/* Bytes as field_bytes shows them; null: there are none. */
static json_t *letter_bytes_json(const void *bytes, size_t length, bool lines)
{
	owned_text char *digits = xmalloc(2 * length + 1);
	owned_text char *shown = NULL;
	bool is_text;

	*hex_write(digits, bytes, length) = '\0';
	if (bytes)
		shown = field_bytes(digits, lines, &is_text);
	return shown ? json_string(shown) : json_null();
}

static json_t *letter_json(const struct redrive_found *found, bool payloads)
{
	const struct consumer_record *record = found->record;
	char time[MOMENT_SIZE];
	json_t *row;

	moment_format_exact(record->timestamp_ms * 1000, time);
	row = json_pack("{s:i, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:b, s:o}", "partition",
	    (int)found->partition, "offset", json_sprintf("%" PRId64, found->offset), "time", time,
	    "topic", letter_text_json(found->topic), "id", api_text(found->id), "key",
	    letter_bytes_json(record->key, record->key_length, false), "attempts",
	    letter_text_json(found->attempts), "reason", letter_text_json(found->reason),
	    "redriven", found->gone, "bytes", json_sprintf("%zu", record->payload_length));
	if (payloads)
		json_object_set_new(row, "payload",
		    letter_bytes_json(record->payload, record->payload_length, true));
	return row;
}

static bool add_letter_row(void *context, const struct redrive_found *found)
{
	struct letters *letters = context;

	if ((int64_t)json_array_size(letters->rows) >= letters->limit ||
	    letters->bytes >= PAGE_BYTES)
		return false;
	letters->bytes += (int64_t)found->record->key_length;
	if (letters->payloads)
		letters->bytes += (int64_t)found->record->payload_length;
	json_array_append_new(letters->rows, letter_json(found, letters->payloads));
	return true;
}

static void show_letters(struct api_call *call, struct letters *letters)
{
	const struct redrive_limits limits = {.ms = READ_MS, .most = INT64_MAX};
	struct redrive_place next;
	struct err err;
	OWNED(owned_redrive_close)
	struct redrive *redrive = redrive_open(letters->section, &letters->choice.filter, &err);

	letters->rows = json_array();
	if (redrive)
		redrive_limit(redrive, &limits);
	if (!redrive ||
	    !redrive_page(redrive, letters->from, add_letter_row, letters, &next, &err)) {
		json_decref(letters->rows);
		return refuse_letters(call, &err);
	}
	api_answer(call, 200,
	    json_pack("{s:s, s:s, s:s, s:o, s:o}", "section", letters->section->name, "topic",
		letters->section->dead_letter_topic, "source", "kafka", "rows", letters->rows,
		"next",
		next.partition < 0
		    ? json_null()
		    : json_sprintf("%" PRId32 ":%" PRId64, next.partition, next.offset)));
}

static void run_dead_letters(struct api_call *call, struct api_worker *worker)
{
	(void)worker;
	if (!begin_kafka_call(call))
		return;
	show_letters(call, call->work);
	end_kafka_call();
}

static bool read_letter_arguments(struct api_call *call, struct letters *letters)
{
	static const char *const names[] = {
	    "section", "id", "key", "topic", "reason", "from", "to", "limit", "after", "payload"};
	enum { FIRST = 1, BEHIND = 7 }; /* of the filter */
	const char *after = api_argument(call, "after"), *payload = api_argument(call, "payload");

	if (!api_arguments_check(call, names, sizeof names / sizeof *names) ||
	    !api_argument_number(call, "limit", 1, MOST_ROWS, &letters->limit))
		return false;
	for (int i = FIRST; i < BEHIND; i++) {
		const char *value = api_argument(call, names[i]);

		if (value && !choose_letters(call, letters, names[i], value))
			return false;
	}
	if (after && !redrive_place_parse(after, &letters->from)) {
		api_refuse(call, 400, "bad_value",
		    "after=%.40s is no place: give it the value of next", after);
		return false;
	}
	letters->payloads = text_equal(payload, "yes");
	if (payload && !letters->payloads && !text_equal(payload, "no")) {
		api_refuse(call, 400, "bad_value", "payload=%.40s is neither yes nor no", payload);
		return false;
	}
	return true;
}

void api_dead_letters_begin(struct api_call *call)
{
	struct letters *letters = letters_create(call);

	if (!read_letter_arguments(call, letters))
		return;
	if (letters->payloads && !(call->caller->roles & ROLE_PAYLOAD))
		return api_refuse(call, 403, "forbidden",
		    "[token \"%s\"] does not have the role payload, which payload=yes needs: leave "
		    "it out, or add the role",
		    call->caller->token.name);
	letters->section = dead_letter_section(call, api_argument(call, "section"));
	if (letters->section)
		api_worker_run(call, run_dead_letters);
}

/* --- the selection --------------------------------------------------------------------------- */

static bool choose_places(struct api_call *call, struct letters *letters)
{
	size_t count = json_array_size(letters->places);

	if (count == 0 || count > MOST_PLACES)
		return api_refuse_value(
		    call, "places is no array of 1 to 1000 places as \"0:17\" (partition:offset)");
	for (size_t i = 0; i < count; i++)
		if (!redrive_place_parse(json_string_value(json_array_get(letters->places, i)),
			&letters->place_list[i]))
			return api_refuse_value(call,
			    "one of the places is none: \"0:17\" is offset 17 of partition 0");
	qsort(letters->place_list, count, sizeof *letters->place_list, redrive_compare_places);
	letters->choice.filter.places = letters->place_list;
	letters->choice.filter.place_count = (int)count;
	return true;
}

static bool choose_by_members(struct api_call *call, struct letters *letters)
{
	const char *name;
	json_t *value;

	if (!json_is_object(letters->chosen))
		return api_refuse_value(
		    call, "filter is no object; {\"reason\": \"status 422\"} is one");
	json_object_foreach(letters->chosen, name, value)
	{
		const char *text = json_string_value(value);

		if (!text || !*text)
			return api_refuse_value(call,
			    "filter: %.100s is no text, or is empty: leave it out to take any",
			    name);
		if (!choose_letters(call, letters, name, text))
			return false;
	}
	return true;
}

/* Reads the body of a preview or an order. False: refused. */
static bool read_selection(struct api_call *call, struct letters *letters, bool is_preview)
{
	const struct api_member members[] = {{"section", 's', &letters->section_name},
	    {"filter", 'o', &letters->chosen}, {"reason", 's', &letters->reason},
	    {"places", 'o', &letters->places}, {"token", 's', &letters->token}};
	const size_t count = sizeof members / sizeof *members;

	letters->body = api_read_order(call);
	if (!letters->body ||
	    !api_read_members(call, letters->body, members, is_preview ? 3 : count))
		return false;
	/* both or neither would leave it to a guess which dead letters are meant */
	if (!letters->chosen == !letters->places)
		return api_refuse_value(call, "%s",
		    is_preview ? "filter is missing; {} means all"
			       : "name one of places and filter; {} as filter means all");
	if (letters->places && letters->token)
		return api_refuse_value(call, "token does not go with places: leave it out");
	letters->section = dead_letter_section(call, json_string_value(letters->section_name));
	return letters->section &&
	       (letters->places ? choose_places(call, letters) : choose_by_members(call, letters));
}

/* --- preview --------------------------------------------------------------------------------- */

/* `ends`: the text behind the slash of the token. */
static struct preview preview_of_letters(struct letters *letters, const char *ends)
{
	owned_text char *filter = json_dumps(letters->chosen, JSON_COMPACT | JSON_SORT_KEYS);

	free(letters->selection);
	letters->selection = xformat("%s %s", filter, ends);
	return (struct preview){.verb = "redrive",
	    .publisher = letters->section->name,
	    .selection = letters->selection};
}

/* "0:18,3:4": the end of each partition that has some. */
static void add_ends(struct text *text, const struct redrive *redrive)
{
	for (int i = 0; i < redrive_partitions(redrive); i++)
		if (redrive_end(redrive, i) > 0)
			text_addf(text, "%s%d:%" PRId64, text->length ? "," : "", i,
			    redrive_end(redrive, i));
}

static void add_sample_row(void *context, const struct redrive_found *found)
{
	struct letters *letters = context;

	if (json_array_size(letters->rows) < SAMPLE)
		json_array_append_new(letters->rows, letter_json(found, false));
}

static void count_letters(struct api_call *call, struct letters *letters)
{
	const struct redrive_limits limits = {.ms = READ_MS, .most = INT64_MAX};
	struct err err;
	OWNED(text_finish) struct text ends = {0};
	OWNED(owned_redrive_close)
	struct redrive *redrive = redrive_open(letters->section, &letters->choice.filter, &err);
	struct redrive_figures figures;
	struct preview preview;
	json_t *answer;

	letters->rows = json_array();
	if (redrive)
		redrive_limit(redrive, &limits);
	if (!redrive || !redrive_find(redrive, add_sample_row, letters, &err)) {
		json_decref(letters->rows);
		return refuse_letters(call, &err);
	}

	figures = redrive_figures(redrive);
	answer = json_pack("{s:s, s:s, s:s, s:o, s:b, s:o, s:o}", "section", letters->section->name,
	    "verb", "redrive", "source", "kafka", "count",
	    json_sprintf("%" PRId64, figures.matching), "exact", !figures.late, "gone_before",
	    json_sprintf("%" PRId64, figures.gone_before), "sample", letters->rows);
	add_ends(&ends, redrive);
	preview = preview_of_letters(letters, text_string(&ends));
	preview.count = figures.matching;
	api_preview_add(call, &preview, answer);
	json_object_set_new(answer, "token",
	    json_sprintf(
		"%s/%s", json_string_value(json_object_get(answer, "token")), text_string(&ends)));
	api_answer(call, 200, answer);
}

static void run_letters_preview(struct api_call *call, struct api_worker *worker)
{
	(void)worker;
	if (!begin_kafka_call(call))
		return;
	count_letters(call, call->work);
	end_kafka_call();
}

void api_redrive_preview_begin(struct api_call *call)
{
	struct letters *letters = letters_create(call);

	if (api_arguments_check(call, NULL, 0) && read_selection(call, letters, true) &&
	    (!letters->reason || api_check_reason(call, json_string_value(letters->reason))))
		api_worker_run(call, run_letters_preview);
}

/* --- redrive --------------------------------------------------------------------------------- */

/* False: refused. Places need no token. */
static bool check_letters_token(struct api_call *call, struct letters *letters)
{
	static const char path[] = "/v1/dead-letters/preview";
	const char *token = json_string_value(letters->token);
	const char *slash = token ? strchr(token, '/') : NULL;
	struct preview preview;
	json_t *base;
	bool good;

	if (letters->places)
		return true;
	preview = preview_of_letters(letters, slash ? slash + 1 : "");
	base = slash ? json_stringn(token, (size_t)(slash - token)) : json_incref(letters->token);
	good = api_preview_check(call, base, path, &preview);
	json_decref(base);
	if (!good)
		return false;
	/* the text is signed with the token, so that each part is right */
	letters->ends = slash ? slash + 1 : "";
	letters->total = preview.count;
	redrive_choice_ends(&letters->choice, letters->ends);
	return true;
}

static void see_nothing(void *context, const struct redrive_found *found)
{
	(void)context;
	(void)found;
}

static void note_unnoted(void *context, int partition)
{
	(void)partition;
	*(bool *)context = true;
}

/* The row of the audit comes first: nothing may be sent without one. */
static bool audit_redrive(struct api_call *call, struct api_worker *worker,
    const struct letters *letters, int64_t matching, int64_t *ret_id)
{
	const struct api_audit audit = {.verb = "redrive",
	    .reason = json_string_value(letters->reason),
	    .target = json_pack("{s:s, s:O, s:I}", "section", letters->section->name,
		letters->places ? "places" : "filter",
		letters->places ? letters->places : letters->chosen, "rows", (json_int_t)matching)};

	log_info("dead_letters_redriven", {"section", LOG_TEXT(letters->section->name)},
	    {"matching", LOG_INT(matching)}, {"reason", LOG_TEXT(audit.reason)},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	return api_audit_note(call, worker, &audit, ret_id);
}

static void send_letters(struct api_call *call, struct api_worker *worker, struct letters *letters)
{
	const struct redrive_limits find = {
	    READ_MS, INT64_MAX, letters->choice.ends, letters->choice.end_count};
	const struct redrive_limits send = {
	    READ_MS, BATCH, letters->choice.ends, letters->choice.end_count};
	bool done, unnoted = false;
	struct redrive_figures figures;
	int64_t matching, audit = 0;
	struct err err;
	OWNED(owned_redrive_close)
	struct redrive *redrive = redrive_open(letters->section, &letters->choice.filter, &err);

	if (redrive)
		redrive_limit(redrive, &find);
	if (!redrive || !redrive_find(redrive, see_nothing, NULL, &err))
		return refuse_letters(call, &err);
	figures = redrive_figures(redrive);
	matching = figures.matching;
	if (matching + figures.gone_before == 0)
		return api_refuse(call, 404, "not_found",
		    "none of these dead letters is in topic %s",
		    letters->section->dead_letter_topic);

	if (matching > 0 && !audit_redrive(call, worker, letters, matching, &audit))
		return;
	redrive_limit(redrive, &send);
	done = matching == 0 || redrive_send(redrive, note_unnoted, &unnoted, &err);
	if (!done && redrive_figures(redrive).sent == 0)
		return refuse_letters(call, &err);
	api_answer(call, 200,
	    json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:o}", "section", letters->section->name,
		"sent", json_sprintf("%" PRId64, redrive_figures(redrive).sent), "left",
		json_sprintf("%" PRId64, matching - redrive_figures(redrive).sent), "gone_before",
		json_sprintf("%" PRId64, figures.gone_before), "exact", !figures.late && !unnoted,
		"error", done ? json_null() : api_text(err.message), "audit", api_audit_id(audit)));
}

static void run_redrive(struct api_call *call, struct api_worker *worker)
{
	/* two at once would overwrite what the other one has noted */
	if (atomic_flag_test_and_set(&is_sending))
		return api_refuse(call, 503, "busy",
		    "another call sends dead letters back: try again when it is done");
	if (begin_kafka_call(call)) {
		send_letters(call, worker, call->work);
		end_kafka_call();
	}
	atomic_flag_clear(&is_sending);
}

/* --- a job ----------------------------------------------------------------------------------- */

static bool store_redrive(struct pg *pg, void *context, struct err *err)
{
	const struct api_call *call = context;
	struct letters *letters = call->work;
	owned_text char *filter = json_dumps(letters->chosen, JSON_COMPACT | JSON_SORT_KEYS);
	const struct redrive_new order = {.section = letters->section->name,
	    .filter = filter,
	    .ends = letters->ends,
	    .reason = json_string_value(letters->reason),
	    .caller = call->caller->token.name,
	    .total = letters->total};

	return redrive_row_create(
	    pg, &api_config(call->api)->postgres[0], &order, &letters->job, &letters->audit, err);
}

static void run_redrive_order(struct api_call *call, struct api_worker *worker)
{
	struct letters *letters = call->work;
	const struct postgres_settings *postgres = &api_config(call->api)->postgres[0];
	struct err err;

	if (!api_worker_change(worker, postgres, store_redrive, call, &err))
		return api_refuse_database(call, &err);
	api_wake_jobs(call, postgres);
	log_info("redrive_stored", {"redrive", LOG_INT(letters->job)},
	    {"section", LOG_TEXT(letters->section->name)},
	    {"dead_letters", LOG_INT(letters->total)},
	    {"reason", LOG_TEXT(json_string_value(letters->reason))},
	    {"caller", LOG_TEXT(call->caller->token.name)},
	    {"request", LOG_TEXT(call->request_id)});
	api_answer(call, 202,
	    json_pack("{s:s, s:s, s:o, s:o, s:o}", "section", letters->section->name, "postgres",
		postgres->name, "job", json_sprintf("redrive-%" PRId64, letters->job), "count",
		json_sprintf("%" PRId64, letters->total), "audit", api_audit_id(letters->audit)));
}

void api_redrive_begin(struct api_call *call)
{
	struct letters *letters = letters_create(call);

	if (api_arguments_check(call, NULL, 0) && read_selection(call, letters, false) &&
	    api_check_reason(call, json_string_value(letters->reason)) &&
	    check_letters_token(call, letters))
		api_worker_run(call, letters->places || api_config(call->api)->postgres_count == 0
					 ? run_redrive
					 : run_redrive_order);
}
