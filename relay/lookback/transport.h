#pragma once
/*
 * How the business is asked what became of its transactions: one file a transport (http, grpc,
 * sql), all of them behind this. Questions are handed over and answers taken out by an event loop;
 * nothing blocks. Owned by one thread.
 *
 * An answer is what the business said of each id, and nothing is concluded from anything else: an
 * id that is not answered, or not in the words of `enum check_word`, is CHECK_UNKNOWN, whatever
 * status or failure came. An answer whose form is wrong anywhere, that names an id which was not
 * asked for, or says two things of one, is worth nothing: every id is unknown.
 *
 * docs/lookback-check.md is the wire of each.
 */
#include <stddef.h>
#include "config.h"
#include "errors.h"

enum check_word { CHECK_UNKNOWN, CHECK_PENDING, CHECK_COMMIT, CHECK_ROLLBACK, CHECK_WORDS };
extern const char *const check_words[CHECK_WORDS]; /* as they are spelled in answers */
/* CHECK_WORDS: it is none. The text need not end with a NUL. */
enum check_word check_word_of(const char *text, size_t length);

struct check_id {
	const char *biz_id, *prepared_at; /* prepared_at: RFC 3339, UTC */
	int attempt;                      /* from 1 */
};

/* About ids of one type, each of them once. All of it stays valid until its answer was released. */
struct check_question {
	const char *biz_type;
	const char *url; /* that the message brought, and that was looked at; NULL: the service's */
	const struct check_id *ids;
	int id_count;
	void *opaque; /* comes back with the answer */
};

struct check_answer {
	void *opaque;
	const enum check_word *words; /* one an id, in the order of the question */
	/*
	 * NULL: an answer came whose form is right and that says something of an id at least (it
	 * may still say unknown). Else a stable code, and all words are unknown: one of
	 * http_client.h, "status" for what is no 200 or no OK, "answer" for a body that is none,
	 * "database" for what a database says.
	 */
	const char *failure;
	/*
	 * For people, always UTF-8 without control characters. Without a failure: what is missing
	 * of some ids, or "".
	 */
	char error[512];
	bool sent; /* something left for the business, so that it counts as an attempt */
	/*
	 * The business is there and answers; it may answer nonsense. For the breaker. Not so when
	 * the time passed, no connection held, or what came says that it is out of order or has too
	 * much to do: status 429 and 5xx of HTTP; UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED,
	 * INTERNAL, UNAVAILABLE and DATA_LOSS of gRPC; what a database says of itself.
	 */
	bool reached;
	int status;             /* of HTTP or gRPC; -1: none */
	int64_t retry_after_ms; /* -1: not said */
	int64_t total_us;
};

struct transport;

/* Rows of one table (transport.c); the functions of one transport. */
struct transport_kind {
	/*
	 * For all requests of one service. What is wrong with its settings: ERR_CONFIG, with the
	 * section and the key. They are not copied. Files and the resolver (the host of a database)
	 * may block here, and the resolver when a database is connected to anew.
	 */
	struct transport *(*open)(const struct config_check *check, struct err *err);
	/* Gives up what is under way, without an answer. NULL is fine. */
	void (*close)(struct transport *transport);
	/*
	 * Every question that was taken over ends in one answer. False: nothing was kept;
	 * ERR_RETRY: too many are under way (of http and grpc host_in_flight, and 1000 where
	 * messages bring URLs; of sql host_in_flight), ERR_REJECT: it cannot be asked like that.
	 */
	bool (*ask)(
	    struct transport *transport, const struct check_question *question, struct err *err);
	/* As those of http_client.h. */
	int (*fd)(const struct transport *transport);
	int64_t (*deadline)(const struct transport *transport);
	void (*step)(struct transport *transport, int64_t now_ms);
	/* The next answer, valid until it is released; NULL: none. */
	struct check_answer *(*take)(struct transport *transport);
	void (*release)(struct transport *transport, struct check_answer *answer);
	/* What `open` would refuse, without a connection; files may be read. */
	bool (*check)(const struct config_check *check, struct err *err);
};

const struct transport_kind *transport_kind_of(enum check_transport transport);
