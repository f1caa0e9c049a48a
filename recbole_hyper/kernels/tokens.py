"""Text to numbers by first appearance: one table over all blocks of a file, of bytes only.

Plain twin: a dictionary of the texts (test_tokens_are_numbered_by_first_appearance_over_all_blocks); for record ends,
the csv module. Kept for: 30 million names, 5 million of them different, in half the time and memory of Arrow's
dictionaries by block and their union (make bench-prepare).
"""

import numpy as np
from numba import njit

from recbole_hyper.kernels.compiled import compiled

_PRIME, _LOW, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFFFFFF), np.uint64(32)
_NONE, _ONE, _EIGHT = np.uint64(0), np.uint64(1), np.uint64(8)
_BATCH = 256


@njit(inline="always")
def _word(text, at):
    """Eight bytes as one number: the compiler makes one load of it."""
    word = np.uint64(text[at])
    for place in range(1, 8):
        word |= np.uint64(text[at + np.uint64(place)]) << np.uint64(8 * place)
    return word


@njit(inline="always")
def _hash(text, first, last):
    mixed = (last - first) * _PRIME
    while first + _EIGHT <= last:
        mixed = (mixed ^ _word(text, first)) * _PRIME
        mixed ^= mixed >> _HALF
        first += _EIGHT
    while first < last:
        mixed = (mixed ^ np.uint64(text[first])) * _PRIME
        first += _ONE
    return (mixed ^ (mixed >> _HALF)) & _LOW


@njit(inline="always")
def _same(text, first, last, names, begin):
    while first + _EIGHT <= last:
        if _word(text, first) != _word(names, begin):
            return False
        first += _EIGHT
        begin += _EIGHT
    while first < last:
        if text[first] != names[begin]:
            return False
        first += _ONE
        begin += _ONE
    return True


@compiled(nogil=True)
def number(offsets, text, slots, starts, names, known, codes):
    """Write the number of each text to ``codes``; return how many are known then.

    ``offsets`` (n + 1,) and ``text`` are the texts as Arrow has them.
    The table is ``slots`` (a power of two, at most half full: hash above, number + 1 below, 0 for free), and the known
    texts are ``names[starts[c]:starts[c + 1]]``; both must have room for n more.
    """
    mask = np.uint64(len(slots) - 1)
    mixed_of, begin_of = np.empty(_BATCH, np.uint64), np.empty(_BATCH, np.uint64)
    warm = np.uint8(0)
    for row in range(len(codes)):
        if row % _BATCH == 0:
            # loads that wait for nothing bring a batch's slots, places and names into the cache side by side
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
    """Put what ``slots`` holds into ``larger``, which is empty."""
    mask = np.uint64(len(larger) - 1)
    for slot in slots:
        if slot != _NONE:
            at = (slot >> _HALF) & mask
            while larger[at] != _NONE:
                at = (at + _ONE) & mask
            larger[at] = slot


@compiled(nogil=True)
def record_ends(text, separator):
    """Find the records of csv ``text`` (bytes), of which values may be in double quotes.

    Returns the position after each line end outside quotes; how many values their quotes close as they should,
    before a separator or a line end, how many not, whether the last is not closed, and where that begins; and where the
    first begins that runs over a line end and is not closed as it should, -1 for none.
    """
    ends = np.empty(np.sum(text == 10), np.int64)
    count = 0
    quoted, fresh, skipped, across = False, True, False, False
    begun, first = 0, -1
    closed, others = 0, 0
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
                    others += 1
                    if across and first < 0:
                        first = begun
            elif byte == 10:
                across = True
            fresh = False
        elif byte == 34 and fresh:
            quoted, across, begun, fresh = True, False, place, False
        else:
            if byte == 10:
                ends[count] = place + 1
                count += 1
            fresh = byte == 10 or byte == separator
    return ends[:count], (closed, others, quoted, begun), first
