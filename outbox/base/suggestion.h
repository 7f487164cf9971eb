#pragma once
/*
 * "Did you mean …?": finds the known word nearest to an unknown one.
 *
 *   struct suggestion nearest = suggestion_begin("laese");
 *   suggestion_offer(&nearest, "lease", "lease");     for each known word
 *   … "unknown key%s", nearest.note …                 "unknown key (did you mean lease?)"
 */
#include <stddef.h>

struct suggestion {
	const char *word; /* must outlive the offers */
	size_t distance;  /* an offer must have a smaller distance */
	char note[192];   /* "" until an offer is near enough */
};

struct suggestion suggestion_begin(const char *word);
/*
 * Compares `known` without regard to case, and notes `shown` if it is nearer than every earlier
 * offer. A change is a character that is missing, added or different, or two exchanged neighbours;
 * one change is allowed for every three characters, at most three. If the unknown word is the
 * beginning of `known`, that counts as one change.
 */
void suggestion_offer(struct suggestion *suggestion, const char *known, const char *shown);
