#include "errors.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages of libpq and librdkafka may contain newlines; an error is one line. */
static void make_one_line(char *message)
{
	size_t length = 0;

	for (char *at = message; *at; at++) {
		bool blank = (unsigned char)*at < ' ' || *at == ' ';
		/* A line end of two characters becomes one blank, and a final one none. */
		if (blank && (at[1] == '\0' || (unsigned char)at[1] < ' '))
			continue;
		message[length++] = blank ? ' ' : *at;
	}
	message[length] = '\0';
}

/* The arguments may point into err->message, so it is written last. */
static bool fill_error(struct err *err, enum err_kind kind, const char *message)
{
	size_t length = strnlen(message, sizeof err->message - 1);

	err->kind = kind;
	memcpy(err->message, message, length);
	err->message[length] = '\0';
	make_one_line(err->message);
	return false;
}

bool err_set(struct err *err, enum err_kind kind, const char *format, ...)
{
	char message[sizeof err->message];
	va_list args;

	if (!err)
		return false;
	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	err->contended = false;
	return fill_error(err, kind, message);
}

bool err_contended(struct err *err)
{
	if (err)
		err->contended = true;
	return false;
}

bool err_prefix(struct err *err, const char *format, ...)
{
	char message[2 * sizeof err->message + 2], prefix[sizeof err->message];
	va_list args;

	if (!err)
		return false;
	va_start(args, format);
	vsnprintf(prefix, sizeof prefix, format, args);
	va_end(args);
	snprintf(message, sizeof message, "%s: %s", prefix, err->message);
	return fill_error(err, err->kind, message);
}

int err_exit_status(const struct err *err)
{
	static const int status[] = {
	    [ERR_RETRY] = 69,
	    [ERR_REJECT] = 65,
	    [ERR_CONFIG] = 78,
	    [ERR_DENIED] = 77,
	    [ERR_FENCED] = 75,
	    [ERR_FATAL] = 70,
	};

	return status[err->kind];
}

bool refusal_set(struct refusal *refusal, const char *code, const char *format, ...)
{
	va_list args;

	refusal->code = code;
	va_start(args, format);
	vsnprintf(refusal->text, sizeof refusal->text, format, args);
	va_end(args);
	return false;
}
