#pragma once
/* `replay` over --server: the relay sends the rows, and goes on when the command ends. */
#include "server.h"

int replay_server_run(const struct call *call); /* the exit status */
