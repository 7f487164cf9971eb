#include "listen_address.h"

#include <string.h>
#include "text.h"

bool listen_address_parse(const char *address, char **ret_host, char **ret_port, struct err *err)
{
	const char *colon = strrchr(address, ':');
	const char *port = colon ? colon + 1 : address;
	size_t length = colon ? (size_t)(colon - address) : 0;
	bool bracketed = length > 2 && address[0] == '[' && colon[-1] == ']';
	int64_t number;

	/* more than one colon needs brackets: else it is unclear where the port begins */
	if (!text_to_int64(port, 0, 65535, &number) || (colon && length == 0) ||
	    (!bracketed && memchr(address, ':', length)))
		return err_set(err, ERR_CONFIG,
		    "%s is no address to listen on: write host:port, [address]:port, or a port "
		    "alone for 127.0.0.1",
		    address);
	*ret_host = !colon      ? xstrdup("127.0.0.1")
		    : bracketed ? xformat("%.*s", (int)length - 2, address + 1)
				: xformat("%.*s", (int)length, address);
	*ret_port = xstrdup(port);
	return true;
}
