#pragma once
/* Shared by the commands `parked …`: their options and arguments, prompts and results. */
#include "call.h"
#include "parked_request.h"

/*
 * The body of a command: the configuration, the publisher of --publisher, then `work`. Returns the
 * exit status.
 */
int parked_call_run(const struct call *call,
    bool (*work)(const struct call *call, struct parked *parked, struct err *err));
#define PARKED_PUBLISHER_OPTION                                                                    \
	{                                                                                          \
		"publisher", "NAME",                                                               \
		    "The publisher whose rows are meant (default: the only one of the "            \
		    "configuration, else \"main\")."                                               \
	}
/* A part of the description of each command that takes terms. */
#define PARKED_TERMS_HELP                                                                          \
	"TERMs select rows; each may be given once, and all must match: topic=orders; key=42, or " \
	"key=\\x00ff in hexadecimal; error=TEXT, a part of the error; "                            \
	"parked=2026-01-02..2026-01-03T12:00, the time of parking (UTC), without the second time " \
	"itself; state=waiting|dead|stalled|paused|free|behind; ids=10..20, with both ids. A "     \
	"range may "                                                                               \
	"be open at one end.\n"

/* Do the options and arguments of such a call fit together? */
bool parked_call_check(const struct call *call, struct err *err) MUST_CHECK;
void parked_print_noted(const struct call *call, int64_t id, const char *word);

/* The body of `parked retry` and `parked skip`. Returns the exit status. */
int parked_call_request(const struct call *call, enum parked_verb verb);
extern const struct command_option parked_request_options[];
