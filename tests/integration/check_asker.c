/*
 * relay/lookback/transport.h as a program, for test_lookback_check.py: questions on standard input,
 * answers on standard output, JSON, one a line, until standard input ends.
 *
 *   check_asker CONFIG SERVICE
 *
 *   {"n": 1, "biz_type": "order", "url": null,
 *    "ids": [{"biz_id": "7", "attempt": 1, "prepared_at": "…"}]}
 *   {"n": 1, "words": ["commit"], "failure": null, "error": "", "sent": true, …}
 *
 * A question that is not taken over: {"n": 1, "refused": kind, "error": "…"}. Settings that are
 * wrong: {"config": "…"}, and no more. The last line, {"longest_us": …}, says how long one call of
 * the loop took at most.
 */
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"
#include "logging.h"
#include "text.h"
#include "transport.h"

struct asked {
	struct check_question question;
	json_t *line; /* owns the texts */
	struct check_id *ids;
};

static const struct transport_kind *kind;
static struct transport *transport;
static int64_t longest_us;
static int under_way;

static void print(json_t *object)
{
	char *text = json_dumps(object, JSON_COMPACT);

	if (!text)
		abort(); /* not UTF-8 */
	puts(text);
	fflush(stdout);
	free(text);
	json_decref(object);
}

static void forget(struct asked *asked)
{
	json_decref(asked->line);
	free(asked->ids);
	free(asked);
}

static struct asked *read_question(const char *text)
{
	struct asked *asked = xcalloc(1, sizeof *asked);
	struct check_question *question = &asked->question;
	const json_t *ids;

	asked->line = json_loads(text, 0, NULL);
	ids = json_object_get(asked->line, "ids");
	question->biz_type = json_string_value(json_object_get(asked->line, "biz_type"));
	question->url = json_string_value(json_object_get(asked->line, "url"));
	question->id_count = (int)json_array_size(ids);
	question->opaque = asked;
	asked->ids = xcalloc((size_t)question->id_count, sizeof *asked->ids);
	question->ids = asked->ids;
	for (int i = 0; i < question->id_count; i++) {
		const json_t *id = json_array_get(ids, (size_t)i);
		asked->ids[i] =
		    (struct check_id){.biz_id = json_string_value(json_object_get(id, "biz_id")),
			.prepared_at = json_string_value(json_object_get(id, "prepared_at")),
			.attempt = (int)json_integer_value(json_object_get(id, "attempt"))};
	}
	return asked;
}

static json_t *number_of(const struct asked *asked)
{
	return json_object_get(asked->line, "n");
}

static void ask(const char *text)
{
	struct asked *asked = read_question(text);
	struct err err;

	if (kind->ask(transport, &asked->question, &err)) {
		under_way++;
		return;
	}
	print(json_pack(
	    "{s:O, s:i, s:s}", "n", number_of(asked), "refused", err.kind, "error", err.message));
	forget(asked);
}

static void show(struct check_answer *answer)
{
	struct asked *asked = answer->opaque;
	json_t *words = json_array();

	for (int i = 0; i < asked->question.id_count; i++)
		json_array_append_new(words, json_string(check_words[answer->words[i]]));
	print(json_pack("{s:O, s:o, s:s?, s:s, s:b, s:b, s:i, s:I, s:I}", "n", number_of(asked),
	    "words", words, "failure", answer->failure, "error", answer->error, "sent",
	    answer->sent, "reached", answer->reached, "status", answer->status, "retry_after_ms",
	    (json_int_t)answer->retry_after_ms, "total_us", (json_int_t)answer->total_us));
	kind->release(transport, answer);
	forget(asked);
	under_way--;
}

/* False: standard input ended. */
static bool read_input(struct text *input)
{
	char bytes[65536];
	ssize_t length = read(STDIN_FILENO, bytes, sizeof bytes);
	char *newline;

	if (length <= 0)
		return false;
	text_append(input, bytes, (size_t)length);
	while ((newline = memchr(input->data, '\n', input->length))) {
		struct text rest = {0};
		*newline = '\0';
		ask(input->data);
		text_add(&rest, newline + 1);
		text_finish(input);
		*input = rest;
		if (!input->data)
			break;
	}
	return true;
}

static int wait_ms(void)
{
	int64_t left = kind->deadline(transport) - clock_ms();

	return left < 0 ? 0 : left > 1000 ? 1000 : (int)left;
}

static void run(void)
{
	struct text input = {0};
	bool open = true;

	while (open || under_way) {
		struct pollfd wanted[] = {{.fd = kind->fd(transport), .events = POLLIN},
		    {.fd = open ? STDIN_FILENO : -1, .events = POLLIN}};
		struct check_answer *answer;
		int64_t begin;

		poll(wanted, 2, wait_ms());
		if (wanted[1].revents)
			open = read_input(&input);
		begin = clock_us();
		kind->step(transport, clock_ms());
		while ((answer = kind->take(transport)))
			show(answer);
		if (clock_us() - begin > longest_us)
			longest_us = clock_us() - begin;
	}
	text_finish(&input);
}

int main(int count, char **arguments)
{
	struct err err;
	struct config *config;
	const struct config_check *check;

	if (count != 3) {
		fputs("usage: check_asker CONFIG SERVICE\n", stderr);
		return EXIT_FAILURE;
	}
	signal(SIGPIPE, SIG_IGN);
	config = config_load(arguments[1], &err);
	check = config ? config_find_check(config, arguments[2]) : NULL;
	if (check) {
		kind = transport_kind_of(check->transport);
		transport = kind->open(check, &err);
	}
	if (transport) {
		run();
		kind->close(transport);
		print(json_pack("{s:I}", "longest_us", (json_int_t)longest_us));
	} else {
		print(json_pack("{s:s, s:i}", "config", err.message, "kind", err.kind));
	}
	config_destroy(config);
	return EXIT_SUCCESS;
}
