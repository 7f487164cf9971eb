#include "host.h"

#include <arpa/inet.h>
#include <string.h>

bool host_is_loopback(const char *host, size_t length)
{
	char text[INET6_ADDRSTRLEN];
	struct in_addr four;
	struct in6_addr six;

	if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	}
	if (length >= sizeof text)
		return false;
	memcpy(text, host, length);
	text[length] = '\0';
	return strcmp(text, "localhost") == 0 ||
	       (inet_pton(AF_INET, text, &four) == 1 && ntohl(four.s_addr) >> 24 == 127) ||
	       (inet_pton(AF_INET6, text, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six));
}
