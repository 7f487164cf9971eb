#pragma once
/*
 * Structured logs to stderr, logfmt or JSON, one line for each event. Logging never waits for
 * stderr: output that a full pipe does not take at once is lost.
 *
 *   log_warn("publish_refused", {"publisher", LOG_TEXT(publisher)}, {"id", LOG_INT(id)});
 *
 * The first word is a stable event code (snake_case); then pairs {field name, LOG_* value}.
 * Values are quoted as the format requires. Never log a payload or a secret. Each event code is
 * limited to 20 lines per second; the lines beyond that, and lines that were lost, are counted and
 * reported as `suppressed=N` on the next line of that code. Any thread may call.
 *
 * logfmt:  ts=2026-01-02T03:04:05.678Z level=warn event=publish_refused publisher=main id=7
 */
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_value {
	const char *text; /* NULL: number */
	int64_t number;
};
static inline struct log_value log_text(const char *string)
{
	return (struct log_value){.text = string ? string : ""};
}
#define LOG_TEXT(string) log_text(string)
#define LOG_INT(value) ((struct log_value){.number = (value)})

struct log_field {
	const char *name;
	struct log_value value;
};

/* Both may be changed at any time (SIGHUP); the defaults are info and logfmt. */
void log_configure(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields, int count);

/*
 * log_event(LOG_LEVEL_INFO, "publisher_taken", {"publisher", LOG_TEXT(name)}, {"shard",
 * LOG_INT(shard)});
 */
#define log_event(level, event, ...)                                                               \
	do {                                                                                       \
		if (log_enabled(level)) {                                                          \
			const struct log_field log_fields_[] = {__VA_ARGS__};                      \
			log_write(level, event, log_fields_,                                       \
			    (int)(sizeof log_fields_ / sizeof *log_fields_));                      \
		}                                                                                  \
	} while (0)
#define log_debug(event, ...) log_event(LOG_LEVEL_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_event(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_event(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_event(LOG_LEVEL_ERROR, event, __VA_ARGS__)
