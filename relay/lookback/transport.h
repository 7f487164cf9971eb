#pragma once
/*
 * Asks the business for the outcome of its transactions, by one of several transports (http, grpc,
 * sql), each in a file of its own. Questions are handed over and answers taken out by an event
 * loop; nothing blocks. Owned by one thread.
 *
 * An answer holds the word of the business for each id, and only such a word counts: an id without
 * a word of `enum check_word` is CHECK_UNKNOWN, whatever status or failure came. If an answer is
 * malformed anywhere, names an id that was not asked for, or has two words for one id, every id is
 * unknown.
 *
 * docs/reference/lookback-check.md describes the wire format of each transport.
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
	 * NULL: a well-formed answer came that has a word for at least one id (the word may be
	 * unknown). Else a stable code, and all words are unknown: a code of http_client.h,
	 * "status" for a status that is not 200 or OK, "answer" for a malformed body, "database"
	 * for an error of a database.
	 */
	const char *failure;
	/*
	 * For people, always UTF-8 without control characters. Without a failure: says what the
	 * answer lacks for some ids, or "".
	 */
	char error[512];
	bool sent; /* part of the request left for the business, so that it counts as an attempt */
	/*
	 * For the breaker. True: the business answers, perhaps with nonsense. False: a timeout
	 * passed, no connection held, or the answer says that the business is out of order or
	 * overloaded: status 429 and 5xx of HTTP; UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED,
	 * INTERNAL, UNAVAILABLE and DATA_LOSS of gRPC; a database's errors about itself.
	 */
	bool reached;
	int status;             /* of HTTP or gRPC; -1: none */
	int64_t retry_after_ms; /* -1: not said */
	int64_t total_us;
};

struct transport;

/* The addresses of a service that has several, by their state. */
struct transport_addresses {
	int working, failing; /* failing: the breaker is not closed */
	int refused;          /* left out by the guard */
};

/* Rows of one table (transport.c); the functions of one transport. */
struct transport_kind {
	/*
	 * Opens a transport for all requests of one service. Wrong settings: ERR_CONFIG, with the
	 * section and the key. The settings are not copied. Files and the resolver (the host of a
	 * database) may block here, and the resolver when a database is connected to anew.
	 */
	struct transport *(*open)(const struct config_check *check, struct err *err);
	/* Gives up the requests under way, without an answer. NULL is fine. */
	void (*close)(struct transport *transport);
	/*
	 * Every question that was taken over ends in one answer. False: the question was not taken
	 * over. ERR_RETRY: too many are under way (http and grpc: host_in_flight, and 1000 where
	 * messages bring URLs; sql: host_in_flight). ERR_REJECT: this request cannot be made.
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
	/*
	 * Refuses the settings that `open` would refuse, without a connection; files may be read.
	 */
	bool (*check)(const struct config_check *check, struct err *err);
	/* False: the service is one URL or database. NULL: always so. */
	bool (*addresses)(
	    const struct transport *transport, struct transport_addresses *ret_addresses);
};

const struct transport_kind *transport_kind_of(enum check_transport transport);
