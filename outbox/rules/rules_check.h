#pragma once
/* Checks rules as outbox_rules_open_as would, without opening anything. */
#include "rule_list.h"

struct rules_wanted {
	const char *store; /* NULL: the records are in a folder */
	const char *const *lines;
	size_t count;
	struct rule_places places;
};

/* ret_wrong: number of the wrong line, from 0; -1: another setting is wrong. NULL is fine. */
bool rules_wanted_check(
    const struct rules_wanted *wanted, int *ret_wrong, struct err *err) MUST_CHECK;
