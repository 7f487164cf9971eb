#pragma once
/*
 * An order of an operator over --server, in two steps: the preview shows what the order would
 * reach, and after the operator's yes its token carries out exactly that.
 */
#include "server.h"

struct server_order {
	const char *preview_path, *path;
	const char *verb;     /* "retry"; NULL: the path says it */
	const char *what;     /* "row", "id", "dead letter" */
	const char *question; /* "Retry" */
	const char *scope_name,
	    *scope;        /* a further member, such as "publisher"; scope NULL: none */
	const json_t *ids; /* NULL: `filter` chooses */
	const json_t *filter;
	void (*add_row)(struct text *out, const json_t *row); /* a line of the sample */
	/* Without a job, each answer has `sent` and `left`, and the order is sent until none is
	 * left. */
	bool repeats;
};

/*
 * The call has the options of confirm.h. The caller owns *ret_answer, the answer to the order;
 * it is NULL after --dry-run.
 */
bool server_order_send(const struct call *call, const struct server_order *order,
    json_t **ret_answer, struct err *err) MUST_CHECK;
