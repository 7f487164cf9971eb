#pragma once
/*
 * An operator's request about parked rows: to try them again, or to leave them out. The request is
 * only noted, with who and why; the owner of each row's shard carries it out at its next look.
 */
#include "parked.h"

enum parked_verb { PARKED_RETRY, PARKED_SKIP };
enum { PARKED_COUNTED = 100000 }; /* rows that are read at most to count those that match */

/* A request about chosen rows. parked_request_init and parked_request_finish. */
struct parked_request {
	struct parked *parked; /* the caller's; its rows are chosen */
	enum parked_verb verb;
	const char *word; /* "retry" or "skip" */
	char *chosen;
	/*
	 * by parked_request_count: rows that match, those of them that the request can address, and
	 * by reason those that it cannot
	 */
	int64_t matching, addressed, behind, free, paused;
	bool more;      /* counted among the first PARKED_COUNTED rows; there are others */
	int64_t about;  /* rows that the owner looks through; an estimate when `more` */
	int64_t at_us;  /* when they were counted, by the database's clock */
	char *snapshot; /* in which they were counted */
	/* the snapshot of a preview: rows that changed since are left alone; NULL: there was none
	 */
	const char *seen;
	int64_t shown; /* the number of rows that it showed */
	int64_t id;    /* by parked_request_note: of outbox.audit */
};

void parked_request_init(
    struct parked_request *request, struct parked *parked, enum parked_verb verb);
void parked_request_finish(struct parked_request *request);

/* ERR_REJECT: the request cannot be noted, for one of the named ids or for all that match. */
bool parked_request_count(struct parked_request *request, struct err *err) MUST_CHECK;
/* Leaves out rows that were parked at this moment or later. To be called before it is noted. */
void parked_request_end(struct parked_request *request, int64_t at_us);
/* Adds "; 3 wait behind the first of their key" for rows that match and are left out. */
void parked_request_add_left_out(const struct parked_request *request, struct text *out);

/* The first rows that the request would mean, with the columns of parked_list.sql. */
struct pg_result *parked_request_sample(
    const struct parked_request *request, int most, struct err *err);

/*
 * Blocks for up to 2 s while the owner changes the rows; after that ERR_RETRY. caller: the name of
 * an API caller, for the audit; NULL: none.
 */
bool parked_request_note(struct parked_request *request, const char *reason, const char *caller,
    struct err *err) MUST_CHECK;

/* How far the owners are with a noted request. */
struct parked_outcome {
	int64_t done, published, refused, refused_id;
	bool over;       /* every row was looked at, and Kafka has answered for each retried one */
	char error[400]; /* of refused_id */
};
/* Returns when the request is carried out, or when timeout_ms have passed. */
bool parked_request_wait(struct parked_request *request, int64_t timeout_ms,
    struct parked_outcome *ret_outcome, struct err *err) MUST_CHECK;

/*
 * The requests of the publisher that are not finished: id, verb, filter, who, at, reason, and their
 * progress. The caller owns *ret_requests.
 */
bool parked_open_requests(struct parked *parked, json_t **ret_requests, struct err *err) MUST_CHECK;
