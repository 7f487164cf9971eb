/*
 * Says where a message is. A worker answers from the database, in run_message_question. Then a
 * reader, of a pool of its own so that Kafka keeps no database waiting, searches the record in
 * Kafka: run_message_record. If all readers are busy, the answer goes out without it.
 */
#include <string.h>
#include "api_arguments.h"
#include "api_look.h"
#include "api_worker.h"
#include "cleanup.h"
#include "message_find.h"
#include "message_record.h"

enum { RECORD_MS = 2000 };

struct message_call {
	const struct postgres_settings *postgres;
	struct message_question question;
	bool records;   /* searches Kafka as well */
	json_t *answer; /* until it is sent */
};

static bool read_message_stages(struct pg *pg, void *context, struct err *err)
{
	struct message_call *asked = context;

	asked->answer = message_find(pg, asked->postgres, &asked->question, err);
	return asked->answer != NULL;
}

static void send_message_answer(struct api_call *call)
{
	struct message_call *asked = call->work;
	json_t *answer = asked->answer;

	asked->answer = NULL;
	api_answer(call, 200, answer);
}

static bool read_acknowledged(struct pg *pg, void *context, struct err *err)
{
	struct message_call *asked = context;

	return message_find_acknowledged(pg, asked->postgres, asked->answer, err);
}

static void run_message_record(struct api_call *call, struct api_worker *reader)
{
	struct message_call *asked = call->work;
	struct err err;

	message_record_search(
	    api_config(call->api), &call->caller->token.sections, asked->answer, RECORD_MS);
	/* a state without this time is better than none */
	if (!api_worker_query(reader, asked->postgres, read_acknowledged, asked, &err))
		api_log_database_error(call, &err);
	send_message_answer(call);
}

static void run_message_question(struct api_call *call, struct api_worker *worker)
{
	struct message_call *asked = call->work;
	owned_text char *nothing = NULL;
	struct err err;

	if (!api_worker_query(worker, asked->postgres, read_message_stages, asked, &err))
		return api_refuse_database(call, &err);
	if (!asked->question.topic &&
	    json_array_size(json_object_get(asked->answer, "rows")) == 0) {
		nothing = message_find_nothing(&asked->question, asked->answer);
		return api_refuse(call, 404, "not_found", "%s", nothing);
	}

	/* reading Kafka for each of many messages would take too long */
	if (asked->records && !asked->question.topic && message_record_is_wanted(asked->answer)) {
		if (api_worker_pass(call, api_readers_of(call->api), run_message_record))
			return; /* the reader has the call now */
		message_record_leave(asked->answer,
		    "the relay reads Kafka for other calls: ask again for the offset");
	}
	send_message_answer(call);
}

static bool read_message_arguments(struct api_call *call, struct message_call *asked)
{
	const struct message_words words = {.id = api_argument(call, "id"),
	    .event_id = api_argument(call, "event_id"),
	    .topic = api_argument(call, "topic"),
	    .key = api_argument(call, "key"),
	    .from = api_argument(call, "from"),
	    .to = api_argument(call, "to"),
	    .limit = api_argument(call, "limit"),
	    .after = api_argument(call, "after")};
	struct err err;

	if (!message_question_read(&words, &asked->question, &err)) {
		if (asked->question.conflicts)
			api_refuse(call, 409, "conflicting_arguments", "%s", err.message);
		else
			api_refuse(call, 400, "bad_value", "%s", err.message);
		return false;
	}
	asked->question.publishers = &call->caller->token.publishers;
	asked->question.payload = call->caller->roles & ROLE_PAYLOAD;
	asked->records = true;
	return api_argument_yes(call, "offset", &asked->records);
}

void api_messages_begin(struct api_call *call)
{
	static const char *const names[] = {
	    "id", "event_id", "topic", "key", "from", "to", "limit", "after", "postgres", "offset"};
	struct message_call *asked = xcalloc(1, sizeof *asked);

	call->work = asked;
	if (!api_arguments_check(call, names, sizeof names / sizeof *names) ||
	    !read_message_arguments(call, asked))
		return;
	asked->postgres = api_named_postgres(call, api_argument(call, "postgres"));
	if (asked->postgres)
		api_worker_run(call, run_message_question);
}

void api_messages_forget(struct api_call *call)
{
	struct message_call *asked = call->work;

	message_question_finish(&asked->question);
	json_decref(asked->answer);
	free(asked);
}
