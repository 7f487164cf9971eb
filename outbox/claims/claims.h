#pragma once
/*
 * A lease on an id while it is handled, so that of several consumers one works on it. A public
 * header of liboutbox.
 *
 *   struct outbox_claims *claims = outbox_claims_open(
 *       "redis url=redis://127.0.0.1 name=billing lease=30s", &error);
 *   outbox_claims_take(claims, id, length, &claim, &taken, &error);
 *   ...                                                handle it, with claim.token
 *   outbox_claims_check(claims, &claim, &error)        before each step that others see
 *   outbox_claims_release(claims, &claim, &error);
 *
 * A thread of its own renews each lease at a third of its life. Who was stopped for longer than
 * the lease, or cut off from the server, has lost it, and is told so by the next call: its own
 * clock says when the lease has ended, and it is counted from before the request that renewed it.
 *
 * No clock helps who is stopped between check and step. For that there is the token: the claims of
 * an id have rising ones, whoever takes them, so that what is written to can refuse a lower one
 * than it has seen.
 *
 * Stores: redis (SET NX PX and scripts that compare; a failover may lose claims, and then only the
 * token tells) and postgres (a table of the schema, docs/explain/dedup.md).
 *
 * Any thread may call; one call at a time goes to the server.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_claims;

struct outbox_claim {
	int64_t token;   /* the fencing token */
	uint64_t number; /* of this struct outbox_claims; for its functions */
};

/* The line: redis or postgres, then url, or dsn and schema; name; lease, 30s unless given; timeout,
 * 2s or a third of the lease. NULL: OUTBOX_CONFIG for the line, else what the server said. */
OUTBOX_PUBLIC struct outbox_claims *outbox_claims_open(
    const char *line, struct outbox_error *error);
/* Gives back what is held, as far as the server answers. Takes NULL. */
OUTBOX_PUBLIC void outbox_claims_close(struct outbox_claims *claims);

/*
 * ret_taken false: somebody else has it, or this process has. OUTBOX_RETRY: it is not known; if the
 * server has given it, it is free after the lease.
 */
OUTBOX_PUBLIC bool outbox_claims_take(struct outbox_claims *claims, const void *id, size_t length,
    struct outbox_claim *ret_claim, bool *ret_taken, struct outbox_error *error);
/* OUTBOX_FENCED: the lease was lost: stop, and write nothing more. Asks no server. */
OUTBOX_PUBLIC bool outbox_claims_check(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error);
/*
 * In any case it is not held any more. OUTBOX_FENCED: it was lost before. OUTBOX_RETRY: the server
 * does not answer; it is free after the lease.
 */
OUTBOX_PUBLIC bool outbox_claims_release(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error);
