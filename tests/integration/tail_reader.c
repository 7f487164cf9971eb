/*
 * outbox/kafka/tail.h as a program, for test_tail.py: questions on standard input, events on
 * standard output, one a line, until standard input ends.
 *
 *   tail_reader BOOTSTRAP ISOLATION IDLE_MS
 *
 *   ask TOPIC PARTITION OFFSET    record TOPIC PARTITION OFFSET VALUE
 *   forget                        end | beyond TOPIC PARTITION BEGIN END
 *                                 failed KIND TOPIC PARTITION TEXT
 *                                 open | closed    the client was made, was ended
 * The last line, "longest MS", says how long one call took at most.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "logging.h"
#include "tail.h"

static struct tail *tail;
static bool was_open;
static int64_t longest_us;

static void took(int64_t since_us)
{
	int64_t us = clock_us() - since_us;

	longest_us = us > longest_us ? us : longest_us;
}

static void show_record(const struct tail_event *event)
{
	printf("record %s %d %" PRId64 " %.*s\n", event->topic, event->partition,
	    event->record.offset, (int)event->record.payload_length,
	    (const char *)event->record.payload);
}

static void show(const struct tail_event *event)
{
	if (event->kind == TAIL_RECORD)
		show_record(event);
	else if (event->kind == TAIL_FAILED)
		printf("failed %d %s %d %s\n", event->failure.kind,
		    event->topic ? event->topic : "-", event->partition, event->failure.message);
	else
		printf("%s %s %d %" PRId64 " %" PRId64 "\n",
		    event->kind == TAIL_END ? "end" : "beyond", event->topic, event->partition,
		    event->begin, event->end);
}

static void show_client(void)
{
	if (tail_is_open(tail) == was_open)
		return;
	was_open = tail_is_open(tail);
	puts(was_open ? "open" : "closed");
}

static void show_events(void)
{
	struct tail_event event;

	for (bool told = true; told;) {
		int64_t since = clock_us();

		told = tail_next(tail, clock_ms(), &event);
		took(since);
		if (told)
			show(&event);
	}
	show_client();
}

static void obey(const char *line)
{
	int64_t since = clock_us(), offset;
	char topic[250];
	int partition;
	struct err err;

	if (sscanf(line, "ask %249s %d %" SCNd64, topic, &partition, &offset) == 3) {
		const struct tail_question question = {
		    .topic = topic, .partition = partition, .offset = offset};

		if (!tail_ask(tail, &question, &err))
			printf("failed %d %s %d %s\n", err.kind, topic, partition, err.message);
	} else if (strcmp(line, "forget\n") == 0) {
		tail_forget(tail);
	} else {
		fprintf(stderr, "what is: %s", line);
		exit(64);
	}
	took(since);
	show_client();
}

/* By read(2): what stdio keeps in its buffer poll does not see. False: the end. */
static bool read_commands(void)
{
	static char text[4096];
	static size_t length;
	ssize_t count = read(STDIN_FILENO, text + length, sizeof text - 1 - length);
	char *end;

	if (count <= 0)
		return false;
	length += (size_t)count;
	text[length] = '\0';
	while ((end = strchr(text, '\n'))) {
		char line[sizeof text];
		size_t taken = (size_t)(end - text) + 1;

		snprintf(line, sizeof line, "%.*s", (int)taken, text);
		memmove(text, text + taken, length - taken + 1);
		length -= taken;
		obey(line);
	}
	return true;
}

static void wait_for(struct pollfd *wanted)
{
	int64_t now = clock_ms(), at = tail_wait(tail);
	int limit = at == INT64_MAX ? -1 : at > now ? (int)(at - now) : 0;

	wanted[1].fd = tail_fd(tail);
	wanted[0].revents = 0;
	poll(wanted, 2, limit);
}

int main(int count, char **arguments)
{
	struct pollfd wanted[2] = {{STDIN_FILENO, POLLIN, 0}, {-1, POLLIN, 0}};
	struct kafka_property servers = {.name = "bootstrap.servers", .origin = "tail_reader"};
	struct kafka_settings kafka = {.name = "main", .properties = &servers, .property_count = 1};
	int64_t since;

	if (count != 4)
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	log_configure(LOG_LEVEL_ERROR, LOG_LOGFMT);
	servers.value = arguments[1];
	tail = tail_create(&kafka, arguments[2], strtoll(arguments[3], NULL, 10));
	do {
		show_events();
		wait_for(wanted);
	} while (wanted[0].revents == 0 || read_commands());
	since = clock_us();
	tail_forget(tail);
	took(since);
	tail_destroy(tail, 2000);
	printf("longest %" PRId64 "\n", longest_us / 1000);
	return 0;
}
