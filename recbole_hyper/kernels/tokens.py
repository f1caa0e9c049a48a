"""Number texts by first appearance, with one hash table of bytes over all blocks of a file; find the records of a csv.

Plain twin: a dictionary of the texts (test_tokens_are_numbered_by_first_appearance_over_all_blocks); for record ends,
the csv module. Kept for: 30 million names, 5 million of them distinct, in half the time and memory of Arrow's
dictionaries per block and their union (make bench-prepare).
"""

import numpy as np
from numba import njit

from recbole_hyper.kernels.compiled import compiled

_PRIME, _LOW, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFFFFFFFF), np.uint64(32)
_NONE, _ONE, _EIGHT = np.uint64(0), np.uint64(1), np.uint64(8)
_BATCH = 256


@njit(inline="always")
def _word(text, at):
    """Return eight bytes as one number; the compiler turns this into one load."""
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
