#pragma once
/* The commands `parked …` over --server. They return the exit status. */
#include "parked_request.h"
#include "server.h"

int parked_server_list(const struct call *call);
int parked_server_show(const struct call *call);
int parked_server_request(const struct call *call, enum parked_verb verb);
