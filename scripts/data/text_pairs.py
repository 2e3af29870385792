"""From aligned blocks to sentence pairs, and from pairs to training, validation and test parts.

The held-out part is chosen by file, never by line: neighbouring lines and sibling pages are near-duplicates.
"""

import hashlib
import re
from typing import NamedTuple

TEST_PAIRS = 500
VALID_PAIRS = 500  # at most; the next held-out pairs after the test pairs

_ABBREVIATIONS = set("e.g i.e etc cf vs no dr mr mrs ms st z.b p.ex ex fig vol art env max min".split())
_SENTENCE_END = re.compile(r"([.!?…][\"”’»')\]]*)\s+(?=[A-ZÀ-ÖØ-ÞĀ-Ž\"“‘'«(\[])")


class Pair(NamedTuple):
    path: str
    source: str
    target: str


def sentences(text):
    found, begin = [], 0
    for end in _SENTENCE_END.finditer(text):
        last_word = text[begin : end.start()].rsplit(" ", 1)[-1].lstrip("([{\"“«'").lower()
        if text[end.start()] == "." and last_word in _ABBREVIATIONS:
            continue
        found.append(text[begin : end.end(1)])
        begin = end.end()
    return [*found, text[begin:]]


def usable(source, target):
    """False for empty, equal, mostly non-letter, very long and badly proportioned pairs."""
    if not source or not target or source == target or max(len(source), len(target)) > 1000:
        return False
    if 2 * sum(character.isalpha() for character in source) < len(source):
        return False
    return len(source) < 12 or 0.4 <= len(target) / len(source) <= 2.7


def pairs_of_blocks(source_blocks, target_blocks):
    """All usable sentence pairs of blocks with the same key, repeats included. Unequal sentence counts keep the block whole."""
    pairs = []
    for key, source in source_blocks.items():
        target = target_blocks.get(key, "")
        if not source or not target:
            continue
        sources, targets = sentences(source), sentences(target)
        if len(sources) != len(targets):
            sources, targets = [source], [target]
        pairs += [Pair(key[0], *both) for both in zip(sources, targets) if usable(*both)]
    return pairs


def first_of_each_source(pairs):
    first = {}
    for pair in pairs:
        first.setdefault(pair.source, pair)
    return list(first.values())


def _md5(text):
    return hashlib.md5(text.encode("utf-8"), usedforsecurity=False).hexdigest()


def held_out(path):
    return int(_md5(path)[:8], 16) % 20 == 0


def split(pairs):
    """{"train", "valid", "test"}: no held-out source occurs in training; test and valid are sentences of ordinary length."""
    train = first_of_each_source(pair for pair in pairs if not held_out(pair.path))
    known = {pair.source for pair in train}
    rest = first_of_each_source(pair for pair in pairs if held_out(pair.path) and pair.source not in known)
    rest = [pair for pair in rest if 4 <= len(pair.source.split()) <= 60 and len(pair.target.split()) <= 80]
    rest.sort(key=lambda pair: _md5(pair.source))
    return {"train": train, "valid": rest[TEST_PAIRS : TEST_PAIRS + VALID_PAIRS], "test": rest[:TEST_PAIRS]}
