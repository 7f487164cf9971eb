#include <inttypes.h>
#include <stdio.h>
#include "cleanup.h"
#include "commands.h"
#include "confirm.h"
#include "redrive.h"
#include "field.h"
#include "server_order.h"
#include "session.h"

enum { SHOWN = 20 };

DEFINE_OWNED(struct redrive, redrive_close)

static void show_dead_letter(void *context, const struct redrive_found *found)
{
	int64_t *shown = context;
	OWNED(text_finish) struct text line = {0};
	OWNED(text_finish) struct text clean = {0};
	/* counts on behind the limit, so that the caller can print how many are left out */
	if ((*shown)++ >= SHOWN)
		return;
	text_addf(&line, "%" PRId32 "/%" PRId64 " of %s, id %s, tried %s times: %s",
	    found->partition, found->offset, found->topic ? found->topic : "?", found->id,
	    found->attempts ? found->attempts : "?", found->reason ? found->reason : "");
	text_add_line(&clean, text_string(&line));
	puts(text_string(&clean));
}

static void warn_unnoted(void *context, int partition)
{
	(void)context;
	fprintf(stderr,
	    "outbox-relay: partition %d: too many single dead letters went back to note each; "
	    "some will be shown again\n",
	    partition);
}

static bool send_all_back(const struct call *call, struct redrive *redrive, struct err *err)
{
	owned_text char *question =
	    xformat("Send %" PRId64 " dead letters back?", redrive_figures(redrive).matching);
	if (!confirm_call(call, question, err))
		return false;

	/* some may have gone back before an error, so the number is printed in any case */
	bool done = redrive_send(redrive, warn_unnoted, NULL, err);
	printf("%" PRId64 " dead letters went back\n", redrive_figures(redrive).sent);
	return done;
}

static bool show_and_redrive(const struct call *call, struct redrive *redrive, struct err *err)
{
	int64_t shown = 0;
	if (!redrive_find(redrive, show_dead_letter, &shown, err))
		return false;
	struct redrive_figures figures = redrive_figures(redrive);
	if (shown > SHOWN)
		printf("… and %" PRId64 " more\n", shown - SHOWN);
	printf("%" PRId64 " dead letters match; %" PRId64 " more went back before\n",
	    figures.matching, figures.gone_before);
	return figures.matching == 0 || call_flag(call, "dry-run") ||
	       send_all_back(call, redrive, err);
}

static bool redrive_all(const struct call *call, struct err *err)
{
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	struct redrive_filter filter = {.id = call_text(call, "id", NULL),
	    .key = call_text(call, "key", NULL),
	    .topic = call_text(call, "topic", NULL),
	    .reason = call_text(call, "reason-has", NULL),
	    .limit = call_number(call, "limit", INT64_MAX)};
	OWNED(owned_config_destroy) struct config *config = session_config(call, err);

	if (!config || !session_range(call, &filter.from_us, &filter.to_us, from, to, err))
		return false;

	const struct config_deliver *section = redrive_section(config, call->arguments[0], err);
	OWNED(owned_redrive_close)
	struct redrive *redrive = section ? redrive_open(section, &filter, err) : NULL;
	return redrive && show_and_redrive(call, redrive, err);
}

/* --- over --server --------------------------------------------------------------------------- */

static void add_listed_dead_letter(struct text *out, const json_t *row)
{
	text_addf(out, "%" JSON_INTEGER_FORMAT "/%s of %s, id %s, tried %s times: ",
	    json_integer_value(json_object_get(row, "partition")), field_member(row, "offset"),
	    field_member(row, "topic"), field_member(row, "id"), field_member(row, "attempts"));
	text_add_line(out, field_member(row, "reason"));
	text_add(out, "\n");
}

static bool choose_sent_back(const struct call *call, json_t *filter, struct err *err)
{
	static const char *const names[][2] = {{"id", "id"}, {"key", "key"}, {"topic", "topic"},
	    {"reason", "reason-has"}, {"from", "from"}, {"to", "to"}};

	if (call_flag(call, "limit"))
		return err_set(err, ERR_REJECT,
		    "--limit does not go with --server: choose by --id, --key, --topic, "
		    "--reason-has, --from or --to");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const char *value = call_text(call, names[i][1], NULL);

		if (value && json_object_set_new(filter, names[i][0], json_string(value)) != 0)
			return err_set(err, ERR_REJECT, "--%s is not UTF-8", names[i][1]);
	}
	return true;
}

static bool report_redrive(const struct call *call, const json_t *answer, struct err *err)
{
	const char *job = json_string_value(json_object_get(answer, "job"));

	if (job)
		return server_watch_job(
		    call, job, field_member(answer, "postgres"), "dead letters", err);
	printf("%" PRId64 " dead letters went back\n", field_number(answer, "sent"));
	return true;
}

/*
 * The order is a job of the relay. A relay without a database sends one batch for each order, so
 * the order is repeated until nothing is left.
 */
static bool redrive_over_server(const struct call *call, const json_t *filter, struct err *err)
{
	const struct server_order order = {.preview_path = "/v1/dead-letters/preview",
	    .path = "/v1/dead-letters/redrive",
	    .what = "dead letter",
	    .question = "Send back",
	    .scope_name = "section",
	    .scope = call->arguments[0],
	    .filter = filter,
	    .add_row = add_listed_dead_letter,
	    .repeats = true};
	json_t *answer = NULL;
	bool done = server_order_send(call, &order, &answer, err) &&
		    (!answer || report_redrive(call, answer, err));

	json_decref(answer);
	return done;
}

static int run_redrive_over_server(const struct call *call)
{
	json_t *filter = json_object();
	struct err err;
	bool done = confirm_check(call, &err) && choose_sent_back(call, filter, &err) &&
		    redrive_over_server(call, filter, &err);

	json_decref(filter);
	return done ? 0 : session_failed(&err);
}

static int run_deliver_redrive(const struct call *call)
{
	struct err err;

	if (server_is_used(call))
		return run_redrive_over_server(call);
	/* checked first: reading a long topic only to refuse the call would waste minutes */
	if (!call_flag(call, "dry-run") && !call_flag(call, "yes") && !confirm_can_ask()) {
		err_set(&err, ERR_REJECT,
		    "there is no terminal to ask: look first with --dry-run, then repeat with "
		    "--yes");
		return session_failed(&err);
	}
	return redrive_all(call, &err) ? 0 : session_failed(&err);
}

static const struct command_option deliver_redrive_options[] = {
    {"id", "ID",
	"Selects dead letters of the message that the application knows by this id, or with this "
	"outbox-id."},
    {"key", "KEY", "Selects dead letters with this key."},
    {"topic", "TOPIC", "Selects dead letters whose messages came from this topic."},
    {"reason-has", "TEXT", "Selects dead letters whose reason contains this text."},
    {"from", "MOMENT",
	"Selects dead letters whose messages have this time or later (RFC 3339, "
	"UTC)."},
    {"to", "MOMENT", "Selects dead letters whose messages are from before this time."},
    {"limit", "N", "Sends at most N, the oldest of each partition first.", 1, INT64_MAX},
    {"dry-run", NULL, "Shows the matching dead letters without sending them."},
    {"yes", NULL, "Does not ask."},
    {"reason", "TEXT", "With --server: the reason, stored in outbox.audit."},
    SERVER_OPTIONS,
    {0},
};

const struct command command_deliver_redrive = {
    .name = "deliver redrive",
    .arguments = "NAME",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "Sends dead letters of a section back to their topics, to be delivered again.",
    .description =
	"Reads the section's dead_letter_topic and sends the matching dead letters back to the "
	"original topics of their messages, with their key, payload and headers; only this "
	"section's group handles them. By default it sends all that match, and each dead letter "
	"once, because Kafka stores which ones went back as offsets of the group GROUP.redriven. "
	"They come after all records that these topics have now, so they lose their place in the "
	"order of their key.\n"
	"It shows the first 20 dead letters and their number, and asks.\n",
    .options = deliver_redrive_options,
    .example = "outbox-relay deliver redrive orders --limit 100 --dry-run",
    .run = run_deliver_redrive,
};
