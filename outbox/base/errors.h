#pragma once
/*
 * Errors are values; their kind says how to go on.
 *
 * A function that can fail returns bool (true: done) and takes `struct err *err` last; on false
 * *err is filled, on true it is untouched. SQLSTATE, Kafka and system codes are translated once, in
 * the adapter of the layer that receives them. Library code returns errors; the loop that retries,
 * stops or reports logs them.
 */
#include <stdbool.h>

#define MUST_CHECK __attribute__((warn_unused_result))

enum err_kind {
	ERR_RETRY,  /* the other side is away or busy: the same call may succeed later */
	ERR_REJECT, /* this input is refused permanently; others may pass */
	ERR_CONFIG, /* the configuration or the command line is wrong */
	ERR_DENIED, /* a privilege or a password is missing */
	ERR_FENCED, /* another process owns it now: forget the state in memory */
	ERR_FATAL,  /* cannot go on */
};

struct err {
	enum err_kind kind;
	bool contended; /* with ERR_RETRY: the database works, but another session was in the way */
	char message[1024]; /* one line: the place, the problem, what to do */
};

/* Fills *err; always returns false, for `return err_set(...)`. err may be NULL. */
bool err_set(struct err *err, enum err_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Says that another session of the database was in the way; always returns false. err: filled. */
bool err_contended(struct err *err);

/* Puts "prefix: " before the present message; always returns false. */
bool err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The documented exit status of the program for an error of this kind (sysexits.h):
 * RETRY 69 EX_UNAVAILABLE, REJECT 65 EX_DATAERR, CONFIG 78 EX_CONFIG, DENIED 77 EX_NOPERM,
 * FENCED 75 EX_TEMPFAIL, FATAL 70 EX_SOFTWARE.
 */
int err_exit_status(const struct err *err);

/*
 * The reason why an input is refused, for its sender: a code that stays the same between releases,
 * and a text for people.
 */
struct refusal {
	const char *code;
	char text[400];
};

/* Fills *refusal; always returns false. The code is kept as a pointer. */
bool refusal_set(struct refusal *refusal, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
