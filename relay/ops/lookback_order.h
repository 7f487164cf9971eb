#pragma once
/* An operator's order: decides the selected ids, or has the business called again about them. */
#include "lookback_selection.h"

enum lookback_verb { LOOKBACK_COMMIT, LOOKBACK_ROLLBACK, LOOKBACK_RETRY };

/* lookback_order_init and lookback_order_finish. */
struct lookback_order {
	struct lookback_selection *selection; /* the caller's */
	enum lookback_verb verb;
	const char *word; /* "commit", "rollback" or "retry" */
	char *chosen;
	int64_t matching; /* by lookback_order_count */
	int64_t id, done; /* by lookback_order_carry_out: of outbox.audit; ids that were changed */
	int64_t duplicates; /* by lookback_order_carry_out: another message has their unique key */
};

void lookback_order_init(
    struct lookback_order *order, struct lookback_selection *selection, enum lookback_verb verb);
void lookback_order_finish(struct lookback_order *order);

/* ERR_REJECT: the order is impossible for one of the named ids, or no id matches. */
bool lookback_order_count(struct lookback_order *order, struct err *err) MUST_CHECK;

/* The named ids or the first that match, with the columns of lookback_list.sql. */
struct pg_result *lookback_order_sample(
    const struct lookback_order *order, int most, struct err *err);

/*
 * In one transaction, with its row in outbox.audit. ERR_RETRY: other operators have decided some of
 * the ids since they were counted; nothing was changed.
 */
bool lookback_order_carry_out(
    struct lookback_order *order, const char *reason, struct err *err) MUST_CHECK;
