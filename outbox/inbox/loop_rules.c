/*
 * Other rules while the inbox runs. The settings get the new lines only when each open partition
 * has them, so that a partition that is opened meanwhile gets the old ones and then the change.
 */
#include "loop_private.h"

#include <stdlib.h>
#include "clock.h"
#include "logging.h"
#include "outbox_error.h"

static bool change_open_rules(struct loop *loop, struct outbox_rules *rules, struct err *err)
{
	struct outbox_error error;
	size_t count = 0;

	while (loop->next_rules[count])
		count++;
	return !rules ||
	       outbox_rules_change(rules, (const char *const *)loop->next_rules, count, &error) ||
	       outbox_error_take(&error, err);
}

static bool change_all_rules(struct loop *loop, struct err *err)
{
	if (!change_open_rules(loop, loop->common_rules.open, err))
		return false;
	for (int i = 0; i < loop->partition_count; i++)
		if (!change_open_rules(loop, loop->partitions[i]->own_rules.open, err))
			return false;
	return true;
}

/* Has an open partition no rules? Then there were none before. */
static bool some_lack_rules(const struct loop *loop)
{
	for (int i = 0; i < loop->partition_count; i++)
		if (!loop->partitions[i]->rules->open)
			return true;
	return false;
}

static void finish_change(struct loop *loop)
{
	inbox_settings_take_rules(loop->settings, loop->next_rules);
	loop->next_rules = NULL;
	/* Rules need a folder or a connection, which partitions get when they are opened. */
	if (loop->settings->rule_count > 0 && some_lack_rules(loop) && !loop->again_at)
		loop->again_at = clock_ms();
	log_info("inbox_rules_changed", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"lines", LOG_INT((int64_t)loop->settings->rule_count)});
}

static void refuse_change(struct loop *loop, const struct err *err)
{
	log_error("inbox_rules_refused", {"group", LOG_TEXT(loop->settings->given.group)},
	    {"error", LOG_TEXT(err->message)},
	    {"consequence", LOG_TEXT("the rules stay as they were")});
	inbox_settings_free_rules(loop->next_rules);
	loop->next_rules = NULL;
}

static void see_new_rules(struct loop *loop)
{
	pthread_mutex_lock(&loop->mutex);
	if (loop->new_rules) {
		inbox_settings_free_rules(loop->next_rules);
		loop->next_rules = loop->new_rules;
		loop->new_rules = NULL;
		loop->rules_at = 0;
	}
	pthread_mutex_unlock(&loop->mutex);
}

void loop_apply_rules(struct loop *loop)
{
	struct err err;

	see_new_rules(loop);
	if (!loop->next_rules || clock_ms() < loop->rules_at)
		return;

	loop->busy = true;
	if (change_all_rules(loop, &err)) {
		finish_change(loop);
	} else if (err.kind == ERR_CONFIG) {
		/* Only a server of all partitions refuses lines that were checked before: none of
		 * the partitions has them. */
		refuse_change(loop, &err);
	} else {
		loop->rules_at = clock_ms() + AGAIN_MS;
		loop_tell(loop, "inbox_rules_wait", &err);
	}
}
