#pragma once
/*
 * A [deliver] section at work: an inbox (inbox.h) whose messages an HTTP sender (http_sender.h)
 * posts to the application, and a thread that looks after both. The thread opens the inbox,
 * publishes its figures each second, replaces an inbox that cannot go on, and closes it in the end.
 *
 *   deliver = deliver_start(section, event_fd, &err);
 *   … deliver_stop(deliver), until deliver_status says that it has ended; deliver_join(deliver);
 */
#include "config.h"
#include "dispatch.h"

struct deliver;

/*
 * The section outlives it; event_fd is written when it has ended. Waits until the inbox is open,
 * which may read files but waits for no server. ERR_CONFIG: names the section.
 * held: it takes no message before the first deliver_pause, which says whether it is paused.
 */
struct deliver *deliver_start(
    const struct config_deliver *section, bool held, int event_fd, struct err *err);
/*
 * Returns at once. Requests under way have `drain` to end, then the inbox takes as long as it takes
 * to commit.
 */
void deliver_stop(struct deliver *deliver);
/* Waits for the end and frees everything; NULL is fine. */
void deliver_join(struct deliver *deliver);

/*
 * Pauses reading of all topics, or resumes it; to resume what is not paused tries the message of
 * each blocked partition again. since: when an operator paused it, for the status; "": unknown, or
 * it is not paused. Any thread.
 */
void deliver_pause(struct deliver *deliver, bool pause, const char *since);

/*
 * Takes the rules of a section of a newly loaded configuration, which the thread gives to the inbox
 * at once; an inbox that is opened later gets them, too. False: they are wrong (ERR_CONFIG, with
 * their place), and nothing is changed. deliver_check_rules says so without a change. Any thread.
 */
bool deliver_change_rules(
    struct deliver *deliver, const struct config_deliver *fresh, struct err *err) MUST_CHECK;
/* The configuration that it was started with; its rules may have been replaced since. */
const struct config_deliver *deliver_section(const struct deliver *deliver);

/* A copy of the last status that its threads noted. */
struct deliver_status {
	bool ended;
	bool works;            /* the inbox is open and can go on */
	bool paused;           /* by deliver_pause, or held */
	bool held;             /* since its start: see deliver_start */
	char paused_at[32];    /* as `since` of deliver_pause */
	char error[512];       /* why it does not work; "" */
	int64_t turn_ms;       /* clock_ms of the last turn of the one that turns least often */
	int64_t inbox_turn_ms; /* the same of the inbox; 0: none is open */
	int partitions, blocked;
	uint64_t messages; /* in memory */
	uint64_t in_progress;
	uint64_t handled, dead_letters; /* since the process began */
	struct dispatch_figures sends;
	char last_error[DISPATCH_ERROR]; /* of the last request; "" when it did not fail */
};
struct deliver_status deliver_status(struct deliver *deliver);
