#include "verify_server.h"

#include <stdio.h>
#include "field.h"
#include "progress.h"
#include "session.h"
#include "verify_print.h"

/* --- the order ------------------------------------------------------------------------------- */

static bool add_verify_texts(json_t *body, const struct call *call, struct err *err)
{
	static const char *const names[] = {"publisher", "from", "to", "sequence"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = call_text(call, names[i], NULL);

		if (value && json_object_set_new(body, names[i], json_string(value)) != 0)
			return err_set(err, ERR_REJECT, "--%s is not UTF-8", names[i]);
	}
	return true;
}

static bool post_verification(const struct call *call, json_t **ret_answer, struct err *err)
{
	json_t *body = json_object();
	const char *reason = call_text(call, "reason", "outbox-relay verify");
	bool done = add_verify_texts(body, call, err) &&
		    (json_object_set_new(body, "reason", json_string(reason)) == 0 ||
			err_set(err, ERR_REJECT, "--reason is not UTF-8"));

	if (call_flag(call, "no-duplicates"))
		json_object_set_new(body, "no_duplicates", json_true());
	if (call_flag(call, "memory"))
		json_object_set_new(body, "memory", json_integer(call_number(call, "memory", 0)));
	done = done && server_ask(call, "/v1/verifications", body, ret_answer, err);
	json_decref(body);
	return done;
}

/* --- the job --------------------------------------------------------------------------------- */

struct verify_watch {
	struct progress progress;
	char shown[256]; /* the last error */
};

static void show_verify_job(void *context, const json_t *job)
{
	struct verify_watch *watch = context;
	const char *error = json_string_value(json_object_get(job, "error"));

	/* a relay begins the job again after such an error */
	if (error && !server_job_is_over(job) && !text_starts(error, watch->shown)) {
		progress_end(&watch->progress);
		fprintf(stderr, "outbox-relay: %s: %s; the relay tries it again\n",
		    field_member(job, "id"), error);
	}
	text_copy(watch->shown, sizeof watch->shown, error ? error : "");
	progress_step(&watch->progress, field_number(job, "done"));
}

static json_t *wait_for_verification(const struct call *call, const json_t *answer, struct err *err)
{
	struct verify_watch watch = {.shown = ""};
	const char *id = field_member(answer, "job");
	json_t *job = NULL, *result = NULL;

	progress_begin(&watch.progress, "rows and records read");
	if (server_follow_job(
		call, id, field_member(answer, "postgres"), show_verify_job, &watch, &job, err)) {
		result = json_incref(json_object_get(job, "result"));
		if (!json_is_object(result))
			err_set(err, ERR_FATAL, "the relay shows no result of %s", id);
	}
	progress_end(&watch.progress);
	json_decref(job);
	if (json_is_object(result))
		return result;
	json_decref(result);
	return NULL;
}

int verify_server_run(const struct call *call)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	int64_t from_us, to_us;
	json_t *answer = NULL, *result = NULL;
	struct err err;

	if (session_range(call, &from_us, &to_us, from, to, &err) &&
	    post_verification(call, &answer, &err))
		result = wait_for_verification(call, answer, &err);
	json_decref(answer);
	return result ? verify_print_result(call, result) : session_failed(&err);
}
