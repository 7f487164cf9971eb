#pragma once
/*
 * Bodies of orders, and rows of outbox.audit for orders that no function of the database notes.
 * Internal to relay/admin.
 */
#include "api_worker.h"

/* The members that orders about publishers and partitions have in common. */
struct api_order {
	json_t *body; /* the others belong to it; NULL: the order does not have them */
	json_t *reason, *postgres_name, *force, *confirm, *dry_run;
	const struct postgres_settings *postgres;
	char *words; /* of force, by api_force_words */
};
/* Reads the body, and chooses the database. False: refused. The caller calls api_order_finish. */
bool api_order_begin(
    struct api_call *call, struct api_order *order, const struct api_member *members, size_t count);
void api_order_finish(struct api_order *order);

struct api_audit {
	const char *verb, *publisher, *reason;
	json_t *target;
};
/*
 * Stores the order of the caller, before it is carried out: none must be without a row. publisher
 * NULL: it concerns none. Takes the target over. *ret_id: of the row. False: *err says why.
 */
bool api_audit_add(struct api_call *call, struct api_worker *worker,
    const struct postgres_settings *postgres, const struct api_audit *audit, int64_t *ret_id,
    struct err *err) MUST_CHECK;

/*
 * For `run`: calls `change` once, with a session that is not lost. False: *err says why, and
 * nothing is refused yet.
 */
bool api_change(struct api_worker *worker, const struct postgres_settings *postgres,
    bool (*change)(struct pg *pg, void *context, struct err *err), void *context,
    struct err *err) MUST_CHECK;
/*
 * Refuses an order that the database refused: 409 owned (ERR_FENCED) or not_applicable
 * (ERR_REJECT), else as api_refuse_database.
 */
void api_refuse_order(struct api_call *call, const struct err *err);

/* "owned,last" of the list `force`, which may be NULL; the caller frees. NULL: refused. */
char *api_force_words(struct api_call *call, const json_t *force, const char *const *known);
/* A dry run changes nothing, so it needs no reason; one that is given is checked. False: refused.
 */
bool api_check_order_reason(struct api_call *call, const json_t *reason, const json_t *dry_run);
/*
 * Protects against an order for another object than the plan showed: confirm repeats the question.
 * False: refused.
 */
bool api_check_confirmation(struct api_call *call, const json_t *confirm, const char *question);

/*
 * api_audit_add for an order that concerns no database: the row is in that of the first [postgres]
 * section. A configuration that only delivers has none, and *ret_id is 0: only the log has the
 * order. False: the call was refused.
 */
bool api_audit_note(struct api_call *call, struct api_worker *worker, const struct api_audit *audit,
    int64_t *ret_id) MUST_CHECK;
json_t *api_audit_id(int64_t id); /* for an answer: a text, or null for 0 */
