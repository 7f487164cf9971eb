#pragma once
/* Partitions, for the commands `partition …` and the HTTP interface. Calls block. */
#include "config.h"
#include "moment.h"
#include "partitions.h"
#include "text.h"

/* Without `from`: makes the partitions that are missing ahead. */
struct partition_making {
	const struct postgres_settings *postgres;
	const char *table; /* NULL: all */
	const char *from;  /* a moment; NULL */
	/* from NULL: the table's partition is there already */
	void (*tell)(void *context, const char *table, const char *from);
	void *context;
	enum partition_outcome outcome; /* result: of the last table */
};
bool partition_orders_make(
    struct pg *pg, struct partition_making *order, struct err *err) MUST_CHECK;

/* partition_order_finish frees. */
struct partition_order {
	struct pg *pg;
	const struct postgres_settings *postgres;
	struct partition_request request;
	/* results of the plan */
	int64_t rows, bytes; /* rows: counted up to COUNTED_ROWS */
	char from[MOMENT_SIZE], to[MOMENT_SIZE];
	char holder[HOLDER_SIZE];       /* who needs a row; "": nobody */
	struct text refused;            /* what contradicts the configuration */
	struct text refused_with;       /* the words for it */
	enum partition_outcome outcome; /* of the last step */
};
/* retain, retention, unpublished, undecided, window; ends with NULL. */
extern const char *const partition_drop_force[];

/* ERR_REJECT: something keeps it that force does not name, or it is no partition. */
bool partition_order_plan(struct partition_order *order, struct err *err) MUST_CHECK;
/* Drops or detaches it. ERR_RETRY: a lock was not free, or a row came that is needed. */
bool partition_order_carry_out(struct partition_order *order, struct err *err) MUST_CHECK;
/* The question that is answered before it; the caller frees. */
char *partition_order_question(const char *name, bool detach);
void partition_order_finish(struct partition_order *order);
/* May the same order succeed a little later? */
bool partition_orders_are_locked(enum partition_outcome outcome);
