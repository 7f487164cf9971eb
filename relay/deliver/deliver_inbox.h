#pragma once
/* The inbox of a [deliver] section. */
#include "config.h"
#include "inbox.h"

/*
 * As outbox_inbox_open, with the settings of the section, which need not outlive it. The handler is
 * called on one thread.
 */
struct outbox_inbox *deliver_inbox_open(const struct config_deliver *section,
    outbox_inbox_handler *handle, void *context, struct err *err);

/* outbox_inbox_change_rules. */
bool deliver_inbox_change_rules(struct outbox_inbox *inbox, const struct config_deliver *section,
    const struct config_list *rules, struct err *err) MUST_CHECK;

/* Whether deliver_inbox_open would take the settings. Files may be read; nothing is connected to.
 */
bool deliver_inbox_check(const struct config_deliver *section, struct err *err) MUST_CHECK;

/* An error of the inbox, with the section's place. Always false. */
bool deliver_inbox_error(
    const struct config_deliver *section, const struct outbox_error *error, struct err *err);
