#pragma once
/*
 * A lease on an id while it is handled, so that only one of several consumers works on it. A public
 * header of liboutbox.
 *
 *   struct outbox_claims *claims = outbox_claims_open(
 *       "redis url=redis://127.0.0.1 name=billing lease=30s", &error);
 *   outbox_claims_take(claims, id, length, &claim, &taken, &error);
 *   ...                                                handle it, with claim.token
 *   outbox_claims_check(claims, &claim, &error)        before each step that others see
 *   outbox_claims_release(claims, &claim, &error);
 *
 * The library's own thread renews each lease at a third of its life. A holder that was paused for
 * longer than the lease, or cut off from the server, has lost the lease, and its next call says so:
 * the holder's own clock decides when the lease has ended, and counts it from before the request
 * that renewed it.
 *
 * Only the token protects a holder that is paused between the check and the step. The tokens of an
 * id rise with each claim, whoever takes it, so that the target of a write can refuse a token that
 * is lower than one it has seen.
 *
 * Stores: redis (SET NX PX and scripts that compare; a failover may lose claims, and then only the
 * token shows it) and postgres (a table of the schema, docs/explain/dedup.md).
 *
 * Any thread may call; one call at a time goes to the server. Functions that fail return false
 * (NULL) and fill *error, which may be NULL. The id of a claim has 1 to 1,024 bytes of any value.
 *
 * docs/examples/rabbitmq.c and docs/examples/redis_queue.c are complete consumers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "outbox_public.h"

struct outbox_claims;

struct outbox_claim {
	int64_t token;   /* the fencing token */
	uint64_t number; /* identifies the claim in its struct outbox_claims */
};

/*
 * The line: redis or postgres, then url with password_file, sentinel_password_file, tls_ca,
 * tls_certificate and tls_key (docs/reference/dedup.md), or dsn and schema; name; lease (default
 * 30s); timeout (default 2s, at most a third of the lease). NULL: OUTBOX_CONFIG for an error in the
 * line, else the error of the server.
 */
OUTBOX_PUBLIC struct outbox_claims *outbox_claims_open(
    const char *line, struct outbox_error *error);
/* Releases the claims that are held, as far as the server answers. Takes NULL. */
OUTBOX_PUBLIC void outbox_claims_close(struct outbox_claims *claims);

/*
 * ret_taken false: another process or this one holds the id; ask again later, or let the queue
 * deliver the message again. OUTBOX_REJECT: the id is empty or too long. OUTBOX_RETRY: the outcome
 * is unknown; if the server has granted the claim, the id is free after the lease.
 */
OUTBOX_PUBLIC bool outbox_claims_take(struct outbox_claims *claims, const void *id, size_t length,
    struct outbox_claim *ret_claim, bool *ret_taken, struct outbox_error *error);
/* OUTBOX_FENCED: the lease was lost: stop, and write nothing more. Sends nothing to the server. */
OUTBOX_PUBLIC bool outbox_claims_check(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error);
/*
 * Afterwards the claim is no longer held, also on failure. OUTBOX_FENCED: it was lost before.
 * OUTBOX_RETRY: the server does not answer; the id is free after the lease.
 */
OUTBOX_PUBLIC bool outbox_claims_release(
    struct outbox_claims *claims, const struct outbox_claim *claim, struct outbox_error *error);
