#pragma once
/* The commands `lookback …` over --server. They return the exit status. */
#include "lookback_order.h"
#include "server.h"

int lookback_server_list(const struct call *call);
int lookback_server_show(const struct call *call);
int lookback_server_order(const struct call *call, enum lookback_verb verb);
