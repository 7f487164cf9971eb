#pragma once
/*
 * Lists as files: format=csv or format=json of a list answers with all its rows, as a stream. Each
 * page is read as a request of its own would read it, when the client has taken the page before: so
 * an export holds one page in memory, and reads nothing for a client that left. Internal to
 * relay/admin.
 *
 * A list is exported by a row of the table in api_export.c. Its `begin` must take the arguments
 * `limit` and the cursor, and its answer must have the rows and "next".
 */
#include "api_private.h"

/* Called with a whole request. Refuses a wrong format; else the call may be an export from here. */
void api_export_begin(struct api_call *call);
/* For api_argument: the value of an argument that the export sets. False: it sets none. */
bool api_export_argument(const struct api_call *call, const char *name, const char **ret_value);
/* For api_answer: takes the page over. */
void api_export_take(struct api_call *call, json_t *page);
/* Is it a file of which the client has a part already? */
bool api_export_goes_on(const struct api_call *call);
enum MHD_Result api_export_respond(struct api_call *call);
void api_export_forget(struct api_call *call);
