#pragma once
/* What the commands `publisher pause` and `publisher resume` share. */
#include "call.h"
#include "command.h"

int publisher_call_pause(const struct call *call, bool pauses);
extern const struct command_option publisher_pause_options[];
