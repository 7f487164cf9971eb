#pragma once
/* The status report for people and for programs. */
#include "status_report.h"
#include "text.h"

/* Begins a line that says what is wrong, behind the indentation. */
#define STATUS_TROUBLE "! "

void status_report_print(const struct status_report *report, struct text *out);
/* One JSON object, one line; 64-bit numbers as strings. */
void status_report_print_json(const struct status_report *report, struct text *out);
