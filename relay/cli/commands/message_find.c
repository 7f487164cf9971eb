/*
 * `message find`: where a message is, as lines or as the JSON of the HTTP interface. Begin at
 * find_message_by_options.
 */
#include "message_find.h"

#include <stdio.h>
#include "commands.h"
#include "field.h"
#include "message_record.h"
#include "server.h"
#include "session.h"

enum { RECORD_MS = 2000 };

/* --- lines ----------------------------------------------------------------------------------- */

static const char *member_text(const json_t *object, const char *name)
{
	return json_string_value(json_object_get(object, name));
}

/* A member that is null prints no line. */
static void print_known(const char *name, const json_t *object, const char *member)
{
	const char *text = member_text(object, member);

	if (text)
		field_print(name, text);
}

/* "opened 2026-… (log row 812)"; nothing if the log does not say it. */
static void add_log_row(
    struct text *line, const char *event, const json_t *window, const char *at, const char *row)
{
	if (member_text(window, at))
		text_addf(line, "%s%s %s (log row %s)", line->length ? ", " : "", event,
		    member_text(window, at), member_text(window, row));
}

static void print_window(const json_t *window)
{
	OWNED(text_finish) struct text line = {0};

	add_log_row(&line, "opened", window, "opened_at", "opened_row");
	add_log_row(&line, "settled", window, "settled_at", "settled_row");
	if (line.length)
		field_print("window", line.data);
}

static void print_kept(const json_t *parked, const json_t *scheduled, const json_t *skipped)
{
	const json_t *head = json_object_get(parked, "behind");
	owned_text char *behind = NULL, *skip = NULL;

	print_known("parked", parked, "state");
	print_known("error", parked, "error");
	print_known("next attempt", parked, "next_at");
	print_known("due", scheduled, "due_at");
	if (json_is_object(head)) {
		behind =
		    xformat("id %s (%s): %s", member_text(head, "id"), member_text(head, "state"),
			member_text(head, "error") ? member_text(head, "error") : "no error");
		field_print("behind", behind);
	}

	if (json_is_object(skipped)) {
		skip = xformat("by %s at %s: %s", member_text(skipped, "by"),
		    member_text(skipped, "at"), member_text(skipped, "reason"));
		field_print("skipped", skip);
	}
}

static void print_replays_of_message(const json_t *replays)
{
	const json_t *replay;
	size_t i;

	json_array_foreach(replays, i, replay)
	{
		owned_text char *line = xformat("%s of %s to %s: %s", member_text(replay, "id"),
		    member_text(replay, "created_at"), member_text(replay, "topic"),
		    member_text(replay, "state"));

		field_print("replay", line);
	}
}

/* A record, or a dead letter. */
static void print_record(const char *name, const json_t *record)
{
	owned_text char *line = NULL;

	if (!json_is_object(record))
		return;
	if (member_text(record, "offset"))
		line = xformat("%s, partition %" JSON_INTEGER_FORMAT ", offset %s, timestamp %s",
		    member_text(record, "topic"),
		    json_integer_value(json_object_get(record, "partition")),
		    member_text(record, "offset"), member_text(record, "timestamp"));
	else
		line = xformat("%s, %s%s%s", member_text(record, "topic"),
		    member_text(record, "state"), member_text(record, "detail") ? ": " : "",
		    member_text(record, "detail") ? member_text(record, "detail") : "");
	field_print(name, line);
}

static void print_publisher_stages(const json_t *place)
{
	printf("publisher %s, shard %" JSON_INTEGER_FORMAT ": %s\n",
	    member_text(place, "publisher"), json_integer_value(json_object_get(place, "shard")),
	    member_text(place, "state"));
	print_known("begins", place, "begins_at");
	print_window(json_object_get(place, "window"));
	print_kept(json_object_get(place, "parked"), json_object_get(place, "scheduled"),
	    json_object_get(place, "skipped"));
	print_known("acknowledged", place, "acknowledged_at");
	print_record("record", json_object_get(place, "record"));
	print_replays_of_message(json_object_get(place, "replays"));
}

static void print_found_message(const json_t *row)
{
	const json_t *place, *dead_letter;
	size_t i;

	printf("message %s\n", member_text(row, "id"));
	print_known("event id", row, "event_id");
	print_known("topic", row, "topic");
	print_known("key", row, "key");
	print_known("created", row, "created_at");
	print_known("deliver at", row, "deliver_at");

	json_array_foreach(json_object_get(row, "publishers"), i, place)
	    print_publisher_stages(place);
	json_array_foreach(json_object_get(row, "dead_letters"), i, dead_letter)
	    print_record("dead letter", dead_letter);
}

static void print_found_messages(const struct message_question *question, const json_t *answer)
{
	const json_t *row;
	size_t i;

	json_array_foreach(json_object_get(answer, "rows"), i, row) print_found_message(row);
	if (member_text(answer, "next"))
		printf(
		    "there may be more: continue with --after %s\n", member_text(answer, "next"));
	else if (question->topic)
		puts("the whole range was searched");
}

/* --- the command ----------------------------------------------------------------------------- */

static bool print_answer(struct session *session, const struct message_question *question,
    json_t *answer, struct err *err)
{
	static const struct config_list all = {0};
	owned_text char *nothing = NULL;

	if (!question->topic && json_array_size(json_object_get(answer, "rows")) == 0) {
		nothing = message_find_nothing(question, answer);
		return err_set(err, ERR_REJECT, "%s", nothing);
	}
	if (!question->topic && message_record_is_wanted(answer)) {
		message_record_search(session->config, &all, answer, RECORD_MS);
		if (!message_find_acknowledged(session->pg, session->postgres, answer, err))
			return false;
	}

	if (call_flag(session->call, "json"))
		field_print_json("", json_incref(answer), JSON_COMPACT, "\n");
	else
		print_found_messages(question, answer);
	return true;
}

static bool read_message_options(
    const struct call *call, struct message_question *question, struct err *err)
{
	const struct message_words words = {.id = call_text(call, "id", NULL),
	    .event_id = call_text(call, "event-id", NULL),
	    .topic = call_text(call, "topic", NULL),
	    .key = call_text(call, "key", NULL),
	    .from = call_text(call, "from", NULL),
	    .to = call_text(call, "to", NULL),
	    .limit = call_text(call, "limit", NULL),
	    .after = call_text(call, "after", NULL)};

	return message_question_read(&words, question, err);
}

static bool check_message_options(const struct call *call, struct err *err)
{
	struct message_question question = {0};
	bool good = read_message_options(call, &question, err);

	message_question_finish(&question);
	return good;
}

static bool find_message_by_options(struct session *session, struct err *err)
{
	OWNED(message_question_finish) struct message_question question = {0};
	json_t *answer = NULL;
	bool done;

	if (!read_message_options(session->call, &question, err))
		return false;
	answer = message_find(session->pg, session->postgres, &question, err);
	done = answer && print_answer(session, &question, answer, err);
	json_decref(answer);
	return done;
}

/* On the database the command reads neither, whatever the login may read. */
static void leave_out_payloads(json_t *answer)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(answer, "rows"), i, row)
	{
		json_object_del(row, "headers");
		json_object_del(row, "payload");
	}
}

/* Everything was searched by the relay, whose answer is the same. */
static bool find_over_server(const struct call *call, struct err *err)
{
	static const char *const names[][2] = {{"id", "id"}, {"event_id", "event-id"},
	    {"topic", "topic"}, {"key", "key"}, {"from", "from"}, {"to", "to"}, {"limit", "limit"},
	    {"after", "after"}, {"postgres", "postgres"}};
	OWNED(message_question_finish) struct message_question question = {0};
	OWNED(text_finish) struct text path = {0};
	json_t *answer = NULL;

	if (!read_message_options(call, &question, err))
		return false;
	text_add(&path, "/v1/messages");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		server_add_argument(&path, names[i][0], call_text(call, names[i][1], NULL));
	if (!server_ask(call, text_string(&path), NULL, &answer, err))
		return false;
	leave_out_payloads(answer);
	if (call_flag(call, "json"))
		field_print_json("", json_incref(answer), JSON_COMPACT, "\n");
	else
		print_found_messages(&question, answer);
	json_decref(answer);
	return true;
}

static int run_message_find(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return find_over_server(call, &err) ? 0 : session_failed(&err);
	return session_run(call, check_message_options, find_message_by_options);
}

static const struct command_option message_find_options[] = {
    {"id", "N", "Id of the message."},
    {"event-id", "UUID", "Its event id, the header outbox-id of its record."},
    {"topic", "TOPIC", "Its topic, together with --key, --from and --to."},
    {"key", "KEY", "Its key: 42, or \\x00ff in hexadecimal."},
    {"from", "TIME", "Written at this time (UTC) or later."},
    {"to", "TIME", "Written before this time."},
    {"limit", "N", "By topic and key: maximum number of messages (1 to 100, default 20)."},
    {"after", "ID", "By topic and key: messages with larger ids."},
    {"json", NULL,
	"One JSON object, as GET /v1/messages without payload and headers; 64-bit numbers are "
	"strings."},
    SESSION_POSTGRES_OPTION,
    SERVER_OPTIONS,
    {0},
};

const struct command command_message_find = {
    .name = "message find",
    .arguments = "",
    .summary = "Shows where a message is, in the database and in Kafka.",
    .description =
	"Shows for each publisher the window of the message with the times at which it was "
	"opened and settled, whether the message is parked, scheduled or skipped, which replays "
	"selected it, and the partition and offset of its record. Also shows dead letters of "
	"[deliver] sections that read the topic.\n"
	"A message is found by its id or event id at any size of the table, and by topic and key "
	"only within a range of time, because the table has no index on keys. An event id that is "
	"no UUID of version 7 needs --from and --to as well.\n"
	"The database is searched for 2 s at most, and Kafka for 2 s more. The role "
	"`outbox_reader` is enough.\n",
    .options = message_find_options,
    .example = "outbox-relay message find --id 4711",
    .run = run_message_find,
};
