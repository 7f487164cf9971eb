#pragma once
/* `verify` over --server: a job of the relay, which goes on when the command ends. */
#include "server.h"

int verify_server_run(const struct call *call); /* the exit status */
