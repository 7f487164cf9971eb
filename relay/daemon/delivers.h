#pragma once
/*
 * The sidecar of a process: its [deliver] sections at work. Owned by the daemon's main thread; any
 * thread may call delivers_ready, delivers_live and the functions that deliver.h lists. If there is
 * a [postgres] section, the first one's database keeps the pauses of the sections.
 */
#include "config.h"
#include "deliver.h"
#include "errors.h"
#include "pause_watch.h"
#include "text.h"

struct delivers;

/*
 * event_fd is written when one of them has ended. process: the name of this one. All outlive it.
 * Fails for a section that cannot work, whatever the servers answer.
 */
struct delivers *delivers_start(
    const struct config *config, const char *process, int event_fd, struct err *err);
/* Returns at once; delivers_are_over tells when it is done. */
void delivers_stop(struct delivers *delivers);
bool delivers_are_over(const struct delivers *delivers);
/* Waits for the sections that have not ended. NULL is fine. */
void delivers_destroy(struct delivers *delivers);

/* As config->delivers. */
struct deliver *const *delivers_sections(const struct delivers *delivers);

/* NULL: there is no [postgres] section. */
struct pause_watch *delivers_pauses(const struct delivers *delivers);

/* Could each section have the rules that a newly loaded configuration gives it? */
bool delivers_check_rules(
    const struct delivers *delivers, const struct config *fresh, struct err *err) MUST_CHECK;
/* Gives them to the sections, after that check. */
void delivers_change_rules(struct delivers *delivers, const struct config *fresh);

/* One line a section; false: one of them is in trouble. */
bool delivers_ready(const struct delivers *delivers, struct text *report);
bool delivers_live(const struct delivers *delivers, int64_t now, struct text *report);
