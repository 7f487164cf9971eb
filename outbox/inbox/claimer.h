#pragma once
/*
 * Claims on the ids of messages while handlers have them, so that no two consumers work on one id
 * at a time (claims.h). One thread asks the server, for many messages in a request, so that the
 * loop waits for no round trip:
 *
 *   claimer_offer -> claiming -> claimer_results: granted, or refused -> … -> claimer_release
 *
 * A claim lives until its message is released, also when the message's partition was revoked: the
 * handler still works on it. claims.c renews it meanwhile.
 *
 * The loop's thread calls all functions, except where another one is named.
 */
#include "claims_store.h"
#include "item.h"

struct claimer_settings {
	const char *line; /* claims.h; checked before */
	size_t most;      /* maximum number of claims at a time */
	int wake_fd;      /* an eventfd, written when there are results */
};

struct claimer;

/* Connects later: if the server is unavailable, the messages wait for it. */
struct claimer *claimer_create(const struct claimer_settings *settings, struct err *err);
/* Releases all claims, as far as the server answers. NULL is fine. */
void claimer_destroy(struct claimer *claimer);

/* Takes ownership of a list of messages in ITEM_CLAIMING. The messages have an id. */
void claimer_offer(struct claimer *claimer, struct item_list *items);
/* Adds the messages whose claims were granted or refused since the last call. */
void claimer_results(
    struct claimer *claimer, struct item_list *ret_granted, struct item_list *ret_refused);
/* True: the server failed since the last call, and the messages wait for it. */
bool claimer_failed(struct claimer *claimer, struct err *ret_err);
/* Takes back all messages, with claims or without. Waits for a request in progress. */
struct item_list claimer_withdraw(struct claimer *claimer);

/*
 * Is the message still claimed by this process? Asks no server. True for a message without a claim.
 * Any thread.
 */
bool claimer_holds(const struct item *item);
/* The claim of a ready message was lost before a handler began: claims it again. Any thread. */
void claimer_claim_again(struct item *item);
/* The claim ends soon after. Nothing to do for a message without a claim. Any thread. */
void claimer_release(struct item *item);
