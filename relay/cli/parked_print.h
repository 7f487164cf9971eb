#pragma once
/* Parked rows as people read them. */
#include "parked_row.h"
#include "text.h"

/* One line. */
void parked_add_row(struct text *out, const struct pg_result *rows, int i);
