#pragma once
/*
 * Judges messages in a store that several processes share (rules_store.h). Makes the questions from
 * messages and rules, and the verdicts from the answers.
 *
 * Owned by one thread.
 */
#include "rule_list.h"

struct rules_shared;

/* Checks the line of the store, and connects to nothing. */
bool rules_shared_check_line(const char *line, struct err *err) MUST_CHECK;
/* Checks what no server must be asked for: each rule has a limit that a shared store can count. */
bool rules_shared_check_list(const struct rule_list *list, struct err *err) MUST_CHECK;

/* user: the expression of the user; NULL: not given. ERR_CONFIG, or the errors of the
 * store. */
struct rules_shared *rules_shared_open(const char *line, const char *user, struct err *err);
void rules_shared_close(struct rules_shared *shared); /* NULL is fine */

/* Can this store judge by these rules? */
bool rules_shared_accept(
    const struct rules_shared *shared, const struct rule_list *list, struct err *err) MUST_CHECK;
/* As outbox_rules_check. Also counts for outbox_rule_stats. */
bool rules_shared_judge(struct rules_shared *shared, const struct rule_list *list,
    const struct outbox_rules_message *messages, size_t count, int64_t now_ms,
    struct outbox_rules_verdict *ret_verdicts, struct err *err) MUST_CHECK;
