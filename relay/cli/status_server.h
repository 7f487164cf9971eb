#pragma once
/* `status` over --server. */
#include "server.h"

/* Asks once, and prints. False: nothing was printed. */
bool status_server_print(const struct call *call, struct err *err) MUST_CHECK;
