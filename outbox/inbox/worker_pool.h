#pragma once
/*
 * The hands of the inbox: threads that call the handler. The loop offers them messages and takes
 * back what was finished; in between they are counted, and known by tickets, so that a second end,
 * or a stranger's, touches nothing.
 *
 * hands_finish and hands_holds may be called from any thread, all others from the loop's.
 */
#include "item.h"

struct hands_settings {
	outbox_inbox_handler *handle;
	void *context;
	struct outbox_inbox *inbox; /* the handler's argument */
	int threads, most, batch;   /* most: messages in hand at once */
	int wake_fd; /* an eventfd, written when something ended and the loop rests */
};

struct hands;

struct hands *hands_create(const struct hands_settings *settings, struct err *err);
/* Waits for handlers to return; what is in hand may be finished until then. NULL is fine. */
void hands_destroy(struct hands *hands);

/* Takes the list, of messages that are ready, over. */
void hands_offer(struct hands *hands, struct item_list *ready);
/* Nothing is handed out from that moment (clock_ms) on: what is ready may be somebody else's. */
void hands_hold_until(struct hands *hands, int64_t until_ms);

/* What ended since. rest: the next end writes wake_fd, if the list is empty. */
struct item_list hands_ended(struct hands *hands, bool rest);
/* What is ready and was not handed out. */
struct item_list hands_withdraw(struct hands *hands);
/*
 * What is in hand no longer belongs to an assigned partition; returns the number of these messages.
 * Who finishes one leaves it where it is until hands_forget, since the loop may still meet it in
 * its key queue; after that it goes.
 */
int hands_abandon(struct hands *hands);
void hands_forget(struct hands *hands);
int hands_in_hand(struct hands *hands);

/* Is it in hand, its partition not taken away, and the moment not come of hands_hold_until? */
bool hands_holds(struct hands *hands, uint64_t ticket);
bool hands_finish(
    struct hands *hands, const struct outbox_inbox_end *ends, size_t count, struct err *err);
