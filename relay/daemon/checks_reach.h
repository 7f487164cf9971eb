#pragma once
/* Whether the services of [deliver] and [check] sections can be reached. Blocking. */
#include "preflight.h"

/* networks is the key of the section, as it is written. */
void checks_reach(
    struct preflight *report, const char *place, const char *url, const char *networks);
