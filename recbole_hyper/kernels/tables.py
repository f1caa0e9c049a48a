"""Loops over large tables: number texts, find the records of a csv, order and filter (user, item) pairs as codes.

Texts are numbered by first appearance, with one hash table of bytes over all blocks of a file.

Plain twin: Arrow's dictionary, ``blocks._records_by_pattern``, ``numpy.lexsort`` and the loops of ``data.filters``.
They also read smaller tables, which need no compiler. Kept for: 30 million names, 5 million of them distinct, in half
the time and memory of Arrow's dictionaries per block and their union; grouping 30 million pairs, finding repeats and
taking the 5-core in a fifth of the time of numpy's sorts (make bench-prepare).
"""

import numpy as np
from numba import njit

from recbole_hyper.kernels.compiled import compiled

_PRIME, _LOW, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFFFFFF), np.uint64(32)
_NONE, _ONE, _EIGHT = np.uint64(0), np.uint64(1), np.uint64(8)
_BATCH = 256
_PIECE = 16


@njit(inline="always")
def _word(text, at):
    """Return eight bytes as one number; the compiler turns this into one load."""
    word = np.uint64(text[at])
    for place in range(1, 8):
        word |= np.uint64(text[at + np.uint64(place)]) << np.uint64(8 * place)
    return word


@njit(inline="always")
def _tail(text, first, last):
    """Return the up to eight bytes from ``first`` to ``last`` as one number."""
    if last >= _EIGHT and first < last:
        return _word(text, last - _EIGHT) >> (_EIGHT * (_EIGHT - (last - first)))
    word = _NONE
    for place in range(first, last):
        word |= np.uint64(text[place]) << (_EIGHT * (np.uint64(place) - first))
    return word


@njit(inline="always")
def _hash(text, first, last):
    mixed = (last - first) * _PRIME
    while first + _EIGHT < last:
        mixed = (mixed ^ _word(text, first)) * _PRIME
        mixed ^= mixed >> _HALF
        first += _EIGHT
    mixed = (mixed ^ _tail(text, first, last)) * _PRIME
    return (mixed ^ (mixed >> _HALF)) & _LOW


@njit(inline="always")
def _same(text, first, last, names, begin):
    end = begin + last - first
    while first + _EIGHT < last:
        if _word(text, first) != _word(names, begin):
            return False
        first += _EIGHT
        begin += _EIGHT
    return _tail(text, first, last) == _tail(names, begin, end)


@compiled(nogil=True)
def number(offsets, text, slots, starts, names, known, codes):
    """Write the number of each text to ``codes``; return the number of distinct texts so far.

    ``offsets`` (n + 1,) and ``text`` are the texts in Arrow's format. The hash table is ``slots``: a power of two, at
    most half full; a slot has the hash in its upper half and number + 1 in its lower half, or is 0 if free. The
    ``known`` texts are ``names[starts[c]:starts[c + 1]]``. All must have room for n more.
    """
    mask = np.uint64(len(slots) - 1)
    mixed_of, begin_of = np.empty(_BATCH, np.uint64), np.empty(_BATCH, np.uint64)
    warm = np.uint8(0)
    for row in range(len(codes)):
        if row % _BATCH == 0:
            # independent loads bring a batch's slots, positions and names into the cache in parallel
            for ahead in range(min(_BATCH, len(codes) - row)):
                mixed = _hash(text, np.uint64(offsets[row + ahead]), np.uint64(offsets[row + ahead + 1]))
                mixed_of[ahead], begin_of[ahead] = mixed, slots[mixed & mask] & _LOW
            for ahead in range(min(_BATCH, len(codes) - row)):
                code = begin_of[ahead]
                begin_of[ahead] = starts[code - min(code, _ONE)]
            for ahead in range(min(_BATCH, len(codes) - row)):
                warm ^= names[begin_of[ahead]]
        first, last = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        mixed = mixed_of[row % _BATCH]
        at = mixed & mask
        while True:
            slot = slots[at]
            if slot == _NONE:
                begin = starts[known]
                for place in range(last - first):
                    names[begin + place] = text[first + place]
                known += 1
                starts[known] = begin + last - first
                slots[at] = (mixed << _HALF) | np.uint64(known)
                codes[row] = known - 1
                break
            if slot >> _HALF == mixed:
                code = slot & _LOW
                begin = starts[code - _ONE]
                if starts[code] - begin == last - first and _same(text, first, last, names, begin):
                    codes[row] = code - _ONE
                    break
            at = (at + _ONE) & mask
    mixed_of[0] = warm
    return known


@compiled(nogil=True)
def rehash(slots, larger):
    """Copy the entries of ``slots`` into ``larger``, an empty table."""
    mask = np.uint64(len(larger) - 1)
    for slot in slots:
        if slot != _NONE:
            at = (slot >> _HALF) & mask
            while larger[at] != _NONE:
                at = (at + _ONE) & mask
            larger[at] = slot


@compiled(nogil=True)
def record_ends(text, separator):
    """Find the records of csv ``text`` (bytes) whose values may be in double quotes.

    Returns the position after each line end outside quotes; the number of quoted values that end before a separator or
    line end, the number that do not, whether the last one is unclosed, and where it starts; and where the first value
    starts that spans lines and does not end before a separator or line end, -1 if there is none.
    """
    ends = np.empty(np.sum(text == 10), np.int64)
    count = 0
    quoted, fresh, skipped, across = False, True, False, False
    start, first = 0, -1
    closed, unclean = 0, 0
    for place in range(len(text)):
        byte = text[place]
        if quoted:
            if skipped:
                skipped = False
            elif byte == 34:
                after = text[place + 1] if place + 1 < len(text) else 10
                # two quotes in a row mean one
                quoted = skipped = after == 34
                if after == separator or after == 10 or after == 13:
                    closed += 1
                elif not quoted:
                    unclean += 1
                    if across and first < 0:
                        first = start
            elif byte == 10:
                across = True
            fresh = False
        elif byte == 34 and fresh:
            quoted, across, start, fresh = True, False, place, False
        else:
            if byte == 10:
                ends[count] = place + 1
                count += 1
            fresh = byte == 10 or byte == separator
    return ends[:count], (closed, unclean, quoted, start), first


@njit(inline="always")
def _order(times, order, spare):
    """Return the stable order of times, in one of two arrays of their length; merges longer and longer pieces.

    np.argsort would take four seconds more to compile.
    """
    for row in range(len(times)):
        place = row
        while place % _PIECE and times[order[place - 1]] > times[row]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = row
    width = _PIECE
    while width < len(times):
        for begin in range(0, len(times), 2 * width):
            left, right = begin, min(begin + width, len(times))
            middle, end = right, min(right + width, len(times))
            for place in range(begin, end):
                if left < middle and (right == end or times[order[left]] <= times[order[right]]):
                    spare[place] = order[left]
                    left += 1
                else:
                    spare[place] = order[right]
                    right += 1
        order, spare = spare, order
        width *= 2
    return order


@njit(inline="always")
def _put(column, order, held):
    """Put a column in this order; ``held`` has room for it."""
    for place in range(len(column)):
        held[place] = column[place]
    for place in range(len(column)):
        column[place] = held[order[place]]


@compiled(nogil=True)
def group(users, columns, starts, low, high, grouped):
    """Group the rows of the users ``low`` to ``high`` - 1 and sort each user's rows by time; ties keep their order.

    ``columns`` are times, items and ratings in the source's order (ratings may be empty). ``grouped`` are the columns
    to fill, and ``starts`` (users + 1,) where each user's rows begin there. Threads may share the users.
    """
    times, items, ratings = columns
    new_times, new_items, new_ratings = grouped
    rated = len(ratings) > 0
    at = starts[low:high].copy()
    for row in range(len(users)):
        user = users[row]
        if low <= user < high:
            place = at[user - low]
            at[user - low] = place + 1
            new_times[place], new_items[place] = times[row], items[row]
            if rated:
                new_ratings[place] = ratings[row]
    longest = 0
    for user in range(low, high):
        longest = max(longest, starts[user + 1] - starts[user])
    orders, held = np.empty((2, longest), np.int64), np.empty(longest)
    for user in range(low, high):
        first, last = starts[user], starts[user + 1]
        place = first + 1
        while place < last and new_times[place] >= new_times[place - 1]:
            place += 1
        if place < last:
            order = _order(new_times[first:last], orders[0], orders[1])
            _put(new_times[first:last], order, held)
            _put(new_items[first:last], order, held)
            if rated:
                _put(new_ratings[first:last], order, held)


@compiled(nogil=True)
def repeated(users, items, item_count, backward):
    """Return which rows repeat a pair of an earlier row (``backward``: a later one); rows are grouped by user."""
    seen = np.full(item_count, -1, np.int32)
    mask = np.zeros(len(users), np.bool_)
    for step in range(len(users)):
        row = len(users) - 1 - step if backward else step
        item = items[row]
        mask[row] = seen[item] == users[row]
        seen[item] = users[row]
    return mask


@compiled(nogil=True)
def core(users, items, n_users, n_items, min_user, min_item):
    """Return which rows are in the largest subset where every user and item has enough rows.

    The rows of each user and each item form a linked list. A user or item below its minimum is put on a stack, and
    its rows are dropped, so each row is visited a fixed number of times.
    """
    alive = np.ones(len(users), np.bool_)
    user_counts, item_counts = np.zeros(n_users, np.int32), np.zeros(n_items, np.int32)
    user_row, item_row = np.full(n_users, -1, np.int32), np.full(n_items, -1, np.int32)
    user_next, item_next = np.empty(len(users), np.int32), np.empty(len(users), np.int32)
    for row in range(len(users)):
        user, item = users[row], items[row]
        user_counts[user] += 1
        item_counts[item] += 1
        user_next[row], user_row[user] = user_row[user], row
        item_next[row], item_row[item] = item_row[item], row
    # a user is its code, an item is -1 - code
    stack = np.empty(n_users + n_items, np.int64)
    top = 0
    for user in range(n_users):
        if user_counts[user] < min_user:
            stack[top] = user
            top += 1
    for item in range(n_items):
        if item_counts[item] < min_item:
            stack[top] = -1 - item
            top += 1
    while top > 0:
        top -= 1
        code = stack[top]
        row = user_row[code] if code >= 0 else item_row[-1 - code]
        while row >= 0:
            if alive[row]:
                alive[row] = False
                user, item = users[row], items[row]
                user_counts[user] -= 1
                item_counts[item] -= 1
                if code >= 0 and item_counts[item] == min_item - 1:
                    stack[top] = -1 - item
                    top += 1
                elif code < 0 and user_counts[user] == min_user - 1:
                    stack[top] = user
                    top += 1
            row = user_next[row] if code >= 0 else item_next[row]
    return alive
