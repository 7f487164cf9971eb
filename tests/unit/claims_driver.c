/*
 * claims_driver LINE: claims for a test that is written in Python, as dedup_driver is. Commands:
 *
 *   take ID          taken NUMBER TOKEN, or held
 *   many ID,ID,…     taken NUMBER TOKEN NUMBER TOKEN …, with 0 0 for an id that is held; the inbox
 *                    takes claims so
 *   check NUMBER     ok
 *   release NUMBER   ok
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claims_store.h"
#include "outbox_error.h"

static const char *const kinds[] = {"retry", "reject", "config", "denied", "fenced", "fatal"};
static struct outbox_error error;

static bool take(struct outbox_claims *claims, const char *id)
{
	struct outbox_claim claim;
	bool taken;
	if (!outbox_claims_take(claims, id, strlen(id), &claim, &taken, &error))
		return false;
	if (taken)
		printf("taken %" PRIu64 " %" PRId64 "\n", claim.number, claim.token);
	else
		puts("held");
	return true;
}

static bool take_many(struct outbox_claims *claims, char *list)
{
	struct claims_id ids[CLAIMS_MOST];
	struct outbox_claim taken[CLAIMS_MOST];
	struct err err;
	size_t count = 0;
	char *rest;

	for (char *id = strtok_r(list, ",", &rest); id && count < CLAIMS_MOST;
	     id = strtok_r(NULL, ",", &rest))
		ids[count++] = (struct claims_id){id, strlen(id), 0};
	if (!claims_take_many(claims, ids, count, taken, &err)) {
		outbox_error_of(&err, &error);
		return false;
	}

	printf("taken");
	for (size_t i = 0; i < count; i++)
		printf(" %" PRIu64 " %" PRId64, taken[i].number, taken[i].token);
	puts("");
	return true;
}

static bool obey(struct outbox_claims *claims, const char *command, char *word)
{
	if (strcmp(command, "many") == 0)
		return take_many(claims, word);
	if (strcmp(command, "take") == 0)
		return take(claims, word);
	const struct outbox_claim claim = {.number = strtoull(word, NULL, 10)};
	bool checks = strcmp(command, "check") == 0;
	if (!(checks ? outbox_claims_check : outbox_claims_release)(claims, &claim, &error))
		return false;
	puts("ok");
	return true;
}

int main(int count, char **arguments)
{
	char *line = NULL, *rest;
	size_t capacity = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct outbox_claims *claims = outbox_claims_open(arguments[count - 1], &error);
	if (claims)
		puts("open");
	else
		printf("error %s %s\n", kinds[error.kind], error.message);
	while (claims && getline(&line, &capacity, stdin) > 0) {
		const char *command = strtok_r(line, " \n", &rest);
		if (!obey(claims, command, strtok_r(NULL, " \n", &rest)))
			printf("error %s %s\n", kinds[error.kind], error.message);
	}
	free(line);
	outbox_claims_close(claims);
	return 0;
}
