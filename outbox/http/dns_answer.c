#include "dns_answer.h"

#include <arpa/nameser.h>
#include <resolv.h>
#include <string.h>

/* RFC 2181: a time with the highest bit set counts as 0. */
static uint32_t clean_ttl(uint32_t ttl_s)
{
	return ttl_s > INT32_MAX ? 0 : ttl_s;
}

static bool read_srv(ns_msg *message, const ns_rr *record, struct dns_record *ret_record)
{
	const unsigned char *data = ns_rr_rdata(*record);

	if (ns_rr_rdlen(*record) < NS_INT16SZ * 3 + 1)
		return false;
	ret_record->priority = (int)ns_get16(data);
	ret_record->weight = (int)ns_get16(data + NS_INT16SZ);
	ret_record->port = (int)ns_get16(data + NS_INT16SZ * 2);
	if (dn_expand(ns_msg_base(*message), ns_msg_end(*message), data + NS_INT16SZ * 3,
		ret_record->target, sizeof ret_record->target) < 0)
		return false;
	/* dn_expand writes the root as "". */
	if (!ret_record->target[0])
		memcpy(ret_record->target, ".", 2);
	return true;
}

/* False: a record that nobody needs, or whose length does not fit its type. */
static bool read_dns_record(ns_msg *message, const ns_rr *record, struct dns_record *ret_record)
{
	static const size_t sizes[] = {[ns_t_a] = NS_INADDRSZ, [ns_t_aaaa] = NS_IN6ADDRSZ};
	const char *owner = ns_rr_name(*record);
	int type = ns_rr_type(*record);

	*ret_record = (struct dns_record){.type = type, .ttl_s = clean_ttl(ns_rr_ttl(*record))};
	if (ns_rr_class(*record) != ns_c_in || strlen(owner) >= sizeof ret_record->owner)
		return false;
	memcpy(ret_record->owner, owner, strlen(owner) + 1);
	if (type == ns_t_srv)
		return read_srv(message, record, ret_record);
	if (type != ns_t_a && type != ns_t_aaaa)
		return false;
	if (ns_rr_rdlen(*record) != sizes[type])
		return false;
	memcpy(ret_record->address, ns_rr_rdata(*record), sizes[type]);
	return true;
}

static bool read_dns_section(ns_msg *message, ns_sect section, struct dns_answer *ret_answer)
{
	bool is_extra = section == ns_s_ar;

	for (int i = 0; i < ns_msg_count(*message, section); i++) {
		struct dns_record *row = &ret_answer->records[ret_answer->count];
		ns_rr record;

		/* A cut off additional section is no loss: its records can be asked for. */
		if (ns_parserr(message, section, i, &record) != 0)
			return is_extra;
		if (!is_extra && clean_ttl(ns_rr_ttl(record)) < ret_answer->ttl_s)
			ret_answer->ttl_s = clean_ttl(ns_rr_ttl(record));
		if (ret_answer->count == DNS_RECORDS || !read_dns_record(message, &record, row))
			continue;
		row->is_extra = is_extra;
		ret_answer->count++;
	}
	return true;
}

bool dns_answer_parse(const unsigned char *bytes, size_t length, struct dns_answer *ret_answer)
{
	ns_msg message;

	ret_answer->count = 0;
	ret_answer->ttl_s = INT32_MAX;
	return length <= NS_MAXMSG && ns_initparse(bytes, (int)length, &message) == 0 &&
	       read_dns_section(&message, ns_s_an, ret_answer) &&
	       read_dns_section(&message, ns_s_ar, ret_answer);
}
