#pragma once
/* What `doctor` says of [deliver] sections. */
#include "checks.h"

/* Connects to nothing. */
void checks_deliver(struct checks *checks);
