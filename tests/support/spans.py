"""Effects that take time: who worked on an id when, and with which fencing token."""

import collections

# ended: None when the target refused the token at the end, or the handler was killed.
Span = collections.namedtuple("Span", "id token began ended")


def judge(spans):
    """Accepted effects of one id never overlap with a later one, and tokens rise."""
    by_id = collections.defaultdict(list)
    for span in sorted(spans, key=lambda span: span.began):
        by_id[span.id].append(span)
    for later in by_id.values():
        for one, two in zip(later, later[1:]):
            assert two.token > one.token > 0, (one, two)
            assert one.ended is None or one.ended <= two.began, (one, two)
