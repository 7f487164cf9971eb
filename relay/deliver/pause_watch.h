#pragma once
/*
 * The pauses of [deliver] sections that a database keeps (outbox.deliver_section): they hold in
 * each process that runs the section, and over restarts. A thread with a session of its own looks
 * once a second and gives each new order to its section. While the database is away, the sections
 * stay as they are.
 *
 * The sections were started as held (deliver_start). The first answer ends that, or an error that
 * does not pass by itself, or 30 s without an answer: a sidecar then delivers without its database.
 */
#include "deliver.h"
#include "postgres_settings.h"

struct pause_watch;

/*
 * Has `count` sections, and notes that the process of this name runs them. All arguments outlive
 * it. ERR_RETRY: there is no thread for it.
 */
struct pause_watch *pause_watch_start(const struct postgres_settings *postgres,
    struct deliver *const *sections, int count, const char *process, struct err *err);
/* Waits for the thread and frees everything; soon, also if the database is away. NULL is fine. */
void pause_watch_stop(struct pause_watch *watch);

/* Begins a look, and waits for its end, at most so long. Any thread. */
void pause_watch_look(struct pause_watch *watch, int64_t most_ms);
