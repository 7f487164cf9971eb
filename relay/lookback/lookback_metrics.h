#pragma once
/* The metrics of the look-back that more than one of its files writes. */
#include <stdint.h>

/* Decisions that won, by what brought them: "message", "check" or "operator". */
void lookback_count_decisions(const char *section, const char *source, int64_t count);
