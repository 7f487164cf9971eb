#pragma once
/* Rows of outbox.audit for orders that no function of the database notes. Internal to relay/admin.
 */
#include "api_worker.h"

/*
 * Stores the order of the caller, before it is carried out: none must be without a row. publisher
 * NULL: it concerns none. Takes the target over. *ret_id: of the row. False: *err says why.
 */
struct api_audit {
	const char *verb, *publisher, *reason;
	json_t *target;
};
bool api_audit_add(struct api_call *call, struct api_worker *worker,
    const struct postgres_settings *postgres, const struct api_audit *audit, int64_t *ret_id,
    struct err *err) MUST_CHECK;
