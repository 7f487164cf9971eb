#pragma once
/* Rows of outbox.audit for orders that no function of the database notes. Internal to relay/admin.
 */
#include "api_worker.h"

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
 * The same for an order that concerns no database: the row is in that of the first [postgres]
 * section. A configuration that only delivers has none, and *ret_id is 0: only the log has the
 * order. False: the call was refused.
 */
bool api_audit_note(struct api_call *call, struct api_worker *worker, const struct api_audit *audit,
    int64_t *ret_id) MUST_CHECK;
json_t *api_audit_id(int64_t id); /* for an answer: a text, or null for 0 */
