#pragma once
/* Findings that one action cures are one line of `doctor`. */
#include "preflight.h"

/* Findings of one severity with the same cure become the first of them. */
void checks_fold(struct preflight *report);
