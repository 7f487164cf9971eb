#include "logging.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "clock.h"
#include "text.h"

enum { LINES_A_SECOND = 20, CODES = 512 };

/* The lines of one event code in the second that began at `since_ms`. */
struct allowance {
	char *event;
	int64_t since_ms;
	int64_t written, suppressed;
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};
static _Atomic int least_level = LOG_LEVEL_INFO;
static _Atomic int line_format = LOG_LOGFMT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the allowances */
static struct allowance allowances[CODES];

void log_configure(enum log_level level, enum log_format format)
{
	atomic_store(&least_level, (int)level);
	atomic_store(&line_format, (int)format);
}

bool log_enabled(enum log_level level)
{
	return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

/* Codes are few and fixed. If there are more than CODES, the rest share the last allowance. */
static struct allowance *find_allowance(const char *event)
{
	size_t i = 0;

	while (i < CODES - 1 && allowances[i].event && strcmp(allowances[i].event, event) != 0)
		i++;
	if (!allowances[i].event)
		allowances[i].event = xstrdup(event);
	return &allowances[i];
}

/* True: write the line, and report the number of lines that were suppressed before it. */
static bool allow_line(const char *event, int64_t *ret_suppressed)
{
	int64_t now = clock_ms();
	struct allowance *allowance;
	bool allowed;

	pthread_mutex_lock(&lock);
	allowance = find_allowance(event);
	if (now - allowance->since_ms >= 1000) {
		allowance->since_ms = now;
		allowance->written = 0;
	}
	allowed = allowance->written < LINES_A_SECOND;
	if (allowed) {
		*ret_suppressed = allowance->suppressed;
		allowance->written++;
		allowance->suppressed = 0;
	} else {
		allowance->suppressed++;
	}
	pthread_mutex_unlock(&lock);
	return allowed;
}

/*
 * Escapes control characters, those of C1 included, which could act on the reader's terminal, and
 * replaces bytes that are not UTF-8, which no JSON parser could read.
 */
static void add_quoted_value(struct text *line, const char *value)
{
	text_add(line, "\"");

	while (*value) {
		uint32_t code = 0;
		int length = text_utf8(value, &code);
		if (length == 0)
			text_add(line, "\xef\xbf\xbd"); /* U+FFFD */
		else if (code == '"' || code == '\\')
			text_addf(line, "\\%c", (int)code);
		else if (code == '\n')
			text_add(line, "\\n");
		else if (code == '\t')
			text_add(line, "\\t");
		else if (code < 0x20 || (code >= 0x7f && code < 0xa0))
			text_addf(line, "\\u%04x", (unsigned)code);
		else
			text_append(line, value, (size_t)length);
		value += length ? length : 1;
	}

	text_add(line, "\"");
}

static bool is_bare(const char *value)
{
	if (!*value)
		return false;
	for (; *value; value++)
		if (*value <= ' ' || *value > '~' || strchr("=\"\\", *value))
			return false;
	return true;
}

static void add_text_field(
    struct text *line, enum log_format format, const char *name, const char *value)
{
	if (format == LOG_JSON) {
		text_addf(line, "%s\"%s\":", line->length ? "," : "{", name);
		add_quoted_value(line, value);
		return;
	}
	text_addf(line, "%s%s=", line->length ? " " : "", name);
	if (is_bare(value))
		text_add(line, value);
	else
		add_quoted_value(line, value);
}

static void add_number_field(
    struct text *line, enum log_format format, const char *name, int64_t number)
{
	const char *shape = format == LOG_JSON ? ",\"%s\":%lld" : " %s=%lld";

	text_addf(line, shape, name, (long long)number);
}

static void add_time(struct text *line, enum log_format format)
{
	int64_t now_ms = clock_wall_us() / 1000;
	time_t seconds = (time_t)(now_ms / 1000);
	struct tm utc;
	char date[32], stamp[40];

	gmtime_r(&seconds, &utc);
	strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(stamp, sizeof stamp, "%s.%03dZ", date, (int)(now_ms % 1000));
	add_text_field(line, format, "ts", stamp);
}

/* Counts lines that were lost; the next line of that code reports them. */
static void leave_out(const char *event, int64_t lines)
{
	pthread_mutex_lock(&lock);
	find_allowance(event)->suppressed += lines;
	pthread_mutex_unlock(&lock);
}

/*
 * Returns how many bytes stderr took at once. If poll reports a pipe as writable, the pipe takes
 * PIPE_BUF bytes without blocking. stderr is not made non-blocking: other programs may share the
 * same open file.
 */
static size_t put_some_bytes(const char *data, size_t length)
{
	struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
	ssize_t taken;

	if (poll(&fd, 1, 0) != 1 || !(fd.revents & POLLOUT))
		return 0;
	do
		taken = write(STDERR_FILENO, data, length < PIPE_BUF ? length : PIPE_BUF);
	while (taken < 0 && errno == EINTR);
	return taken > 0 ? (size_t)taken : 0;
}

/*
 * Output that stderr does not take at once is lost: logging must not block publishing. False: the
 * line was not written completely.
 */
static bool put_line(const struct text *line)
{
	/* No other thread may write between poll and write, or into the middle of the line. */
	static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
	static bool torn; /* the last line was written only in part */
	size_t done = 0, some = 1;

	pthread_mutex_lock(&output);
	/* The next line must not join the rest of a torn one. */
	if (torn && put_some_bytes("\n", 1) == 1)
		torn = false;
	while (!torn && some > 0 && done < line->length) {
		some = put_some_bytes(line->data + done, line->length - done);
		done += some;
	}
	torn |= done > 0 && done < line->length;
	pthread_mutex_unlock(&output);
	return done == line->length;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields, int count)
{
	enum log_format format = (enum log_format)atomic_load(&line_format);
	struct text line = {0};
	int64_t suppressed = 0;

	if (!allow_line(event, &suppressed))
		return;

	add_time(&line, format);
	add_text_field(&line, format, "level", level_names[level]);
	add_text_field(&line, format, "event", event);
	for (int i = 0; i < count; i++) {
		if (fields[i].value.text)
			add_text_field(&line, format, fields[i].name, fields[i].value.text);
		else
			add_number_field(&line, format, fields[i].name, fields[i].value.number);
	}
	if (suppressed)
		add_number_field(&line, format, "suppressed", suppressed);
	text_add(&line, format == LOG_JSON ? "}\n" : "\n");

	/* Lost lines count as suppressed, so that the next line of this event reports them. */
	if (!put_line(&line))
		leave_out(event, suppressed + 1);
	text_finish(&line);
}
