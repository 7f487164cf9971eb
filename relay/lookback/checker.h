#pragma once
/*
 * The checker of a [lookback] section: a thread that claims overdue prepares, asks their business
 * (transport.h) and writes the results, as schedule.h decides. Any number of relays may run one for
 * the same section: claims keep them apart, and each has its own rates and breakers.
 *
 * Start it when the schema is there (migrate_check), after the routes of the section are known to
 * be good: checker_start fails for a configuration that cannot work. It needs no reader: the
 * database has the overdue prepares. Stop it before or after the reader, in any order.
 *
 *   checker = checker_start(&(struct checker_options){.config = config, .lookback = section,
 *       .transport = transport_kind_of, .event_fd = event_fd}, &err);
 *   … checker_stop(checker), checker_join(checker);
 *
 * A stopped checker waits half a second for answers to the requests under way; the claims of
 * requests without an answer end by themselves.
 */
#include "config.h"
#include "transport.h"

struct checker;

struct checker_options {
	const struct config *config; /* this and the next outlive the checker */
	const struct config_lookback *lookback;
	const struct transport_kind *(*transport)(enum check_transport transport);
	int event_fd; /* an eventfd, written when the thread has ended; -1: none */
};

/*
 * Starts the thread. ERR_CONFIG: an allow list is malformed. ERR_RETRY: no thread could be started.
 */
struct checker *checker_start(const struct checker_options *options, struct err *err);
/* Asks the checker to end, which takes about 1.5 s at most; returns at once. */
void checker_stop(struct checker *checker);
/* Waits for the thread and frees everything; NULL is fine. */
void checker_join(struct checker *checker);

/* A copy of the last status that the thread noted. */
struct checker_status {
	bool ended;
	int64_t loop_ms;   /* clock_ms of the last turn of the loop: old means stalled (/livez) */
	bool works;        /* the database answers and accepted the last statements (/readyz) */
	char error[512];   /* why not; "" */
	int rows;          /* claimed, and not settled yet */
	int in_flight;     /* requests */
	int breakers_open; /* hosts that are not asked, or only as a probe */
	char last_error[512]; /* "HOST: the last error" of one of those hosts; "" */
};
struct checker_status checker_status(struct checker *checker);
