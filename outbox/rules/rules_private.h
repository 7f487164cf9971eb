#pragma once
/* For tests: outbox_rules_check with the caller's clock. */
#include "errors.h"
#include "rules.h"

bool rules_check_at(struct outbox_rules *rules, const struct outbox_rules_message *messages,
    size_t count, int64_t now_ms, struct outbox_rules_verdict *ret_verdicts,
    struct err *err) MUST_CHECK;
