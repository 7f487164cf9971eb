#pragma once
/* The list of replays, from the database or from a relay. */
#include "call.h"
#include "field.h"

/* Prints lines, or the JSON with --json. Takes the list over: jobs, as job_list_row makes them. */
void replay_print_list(const struct call *call, json_t *replays);
