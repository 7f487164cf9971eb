#include "suggestion.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST_WORD = 80, MOST_CHANGES = 3, SHORTEST_BEGINNING = 3 };

static size_t least_of(size_t a, size_t b)
{
	return a < b ? a : b;
}

static bool same_character(char a, char b)
{
	return strncasecmp(&a, &b, 1) == 0;
}

/* The optimal string alignment distance. */
static size_t edit_distance(const char *a, const char *b)
{
	size_t cost[LONGEST_WORD + 1][LONGEST_WORD + 1], rows = strlen(a), columns = strlen(b);

	if (rows > LONGEST_WORD || columns > LONGEST_WORD)
		return SIZE_MAX;
	for (size_t i = 0; i <= rows; i++)
		for (size_t j = 0; j <= columns; j++) {
			if (i == 0 || j == 0) {
				cost[i][j] = i + j;
				continue;
			}

			cost[i][j] = least_of(least_of(cost[i - 1][j], cost[i][j - 1]) + 1,
			    cost[i - 1][j - 1] + !same_character(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same_character(a[i - 1], b[j - 2]) &&
			    same_character(a[i - 2], b[j - 1]))
				cost[i][j] = least_of(cost[i][j], cost[i - 2][j - 2] + 1);
		}
	return cost[rows][columns];
}

struct suggestion suggestion_begin(const char *word)
{
	return (struct suggestion){
	    .word = word, .distance = least_of((strlen(word) + 1) / 3, MOST_CHANGES) + 1};
}

void suggestion_offer(struct suggestion *suggestion, const char *known, const char *shown)
{
	size_t length = strlen(suggestion->word);
	size_t distance = edit_distance(suggestion->word, known);

	/* The beginning of a known word counts as nearly right, however much is missing. */
	if (length >= SHORTEST_BEGINNING && strncasecmp(known, suggestion->word, length) == 0)
		distance = least_of(distance, 1);
	if (distance >= suggestion->distance)
		return;
	suggestion->distance = distance;
	snprintf(suggestion->note, sizeof suggestion->note, " (did you mean %s?)", shown);
}
