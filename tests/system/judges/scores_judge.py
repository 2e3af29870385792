#!/usr/bin/env python3
"""Writes 200 sets of hypotheses and references with what sacreBLEU says of each: random ones, and ones that are meant to break a scorer.

usage: scores_judge.py OUT

OUT becomes a JSON file: {"signatures": {"bleu": …}, "sets": [{"kind", "hypotheses", "references", "bleu", "chrf", "ter", "printed"}]}.
A score is a string in hexadecimal, so that every bit arrives. The sets are the same at each call. Exit code 77: no sacreBLEU.
"""
import json
import math
import random
import sys

try:
    from sacrebleu.metrics import BLEU, CHRF, TER
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

SPACES = [" ", "  ", "\t", "\u00a0", "\u1680", "\u2003", "\u2028", "\u202f", "\u205f", "\u3000", "\u0085", "\x1c", "\x0b"]
NO_SPACES = ["\u200b", "\ufeff", "\u2060", "\u180e", "\u200d"]
CASED = ["İstanbul", "ISTANBUL", "ΌΔΟΣ", "ΣΣ", "Σ", "ΑΣ'", "Α\u0301Σ\u0301.", "STRAßE", "ẞ", "ǅ", "Ⓐ", "Ж", "Ꭰ", "𐐀", "Ａ", "ﬀ"]
PUNCTUATION = [".", ",", "-", "1.5", "1,000.50", "3-4", "a.b", "...", "(x)", "&quot;", "&amp;lt;", "<skipped>", "$5", "'s", "[", "`", "~", "/", "5.", ".5", "x-", "7-"]
EMOJI = ["😀", "👩\u200d👩\u200d👧", "🇫🇷", "👍🏽", "é", "e\u0301", "한국어", "ก็", "\u0627\u0644"]
CJK = "日本語の文章です。中国，漢字！ー・カタカナ㐀𠀀"


def words(rng, vocabulary, most):
    return [rng.choice(vocabulary) for _ in range(rng.randint(0, most))]


def edited(rng, line, vocabulary):
    """The line after a few removals, insertions, replacements, and moves of several words."""
    line = list(line)
    for _ in range(rng.randint(0, 6)):
        at = rng.randint(0, len(line))
        kind = rng.choice("rimmms")
        if kind == "i":
            line.insert(at, rng.choice(vocabulary))
        elif kind == "m":
            to, size = rng.randint(0, len(line)), rng.randint(1, 12)
            block, line = line[at:at + size], line[:at] + line[at + size:]
            line[to:to] = block
        elif line and kind == "r":
            line.pop(at % len(line))
        elif line:
            line[at % len(line)] = rng.choice(vocabulary)
    return line


def pair_of(rng, kind):
    """A hypothesis and its reference."""
    letters = list("abcdefgh")
    if kind == "few words":  # repeated words: many moves are possible
        reference = words(rng, letters[:rng.randint(1, 4)], 35)
        return " ".join(edited(rng, reference, letters)), " ".join(reference)
    if kind == "many words":
        vocabulary = [f"w{i}" for i in range(60)]
        reference = words(rng, vocabulary, 40)
        return " ".join(edited(rng, reference, vocabulary)), " ".join(reference)
    if kind == "shuffled":
        reference = words(rng, letters, 20)
        return " ".join(rng.sample(reference, len(reference))), " ".join(reference)
    if kind == "empty lines":
        return rng.choice(["", " ", "\u3000", "a", "a b c d e"]), rng.choice(["", "", "\t", "a", "a b c d f"])
    if kind == "one word":
        return rng.choice(["x", "X", "word", "."]), rng.choice(["x", "word", "other"])
    if kind == "cjk":
        reference = "".join(rng.choice(CJK) for _ in range(rng.randint(1, 30)))
        cut = rng.randint(0, len(reference))
        return reference[cut:] + rng.choice(["", " ", "。"]) + reference[:cut], reference
    if kind == "emoji":
        reference = words(rng, EMOJI, 12)
        return rng.choice(["", " "]).join(edited(rng, reference, EMOJI)), " ".join(reference)
    if kind == "spaces":
        vocabulary = ["a", "b", "c."] + NO_SPACES
        reference = words(rng, vocabulary, 12)
        spread = "".join(word + rng.choice(SPACES) for word in reference)
        return "".join(word + rng.choice(SPACES) for word in edited(rng, reference, vocabulary)), rng.choice(SPACES) + spread
    if kind == "punctuation":
        vocabulary = PUNCTUATION + ["a", "the", "12"]
        reference = words(rng, vocabulary, 15)
        return rng.choice(["", " "]).join(edited(rng, reference, vocabulary)), rng.choice(["", " "]).join(reference)
    if kind == "case":
        reference = words(rng, CASED, 10)
        return " ".join(word.swapcase() if rng.random() < 0.5 else word.lower() for word in edited(rng, reference, CASED)), " ".join(reference)
    if kind == "unequal lengths":  # beyond what the beam covers
        few, many = words(rng, letters, 3), words(rng, letters, 170)
        return (" ".join(few), " ".join(many)) if rng.random() < 0.5 else (" ".join(many), " ".join(few))
    if kind == "beam":  # equal words at the edges of what the beam covers
        size, reference = rng.randint(2, 8), [f"w{i}" for i in range(rng.randint(30, 500))]
        ratio = len(reference) / size
        beam = 25 if ratio <= 50 else math.ceil(ratio / 2 + 25)
        at = [int(i * ratio) + rng.choice([-1, 1]) * (beam + rng.randint(-2, 1)) for i in range(1, size + 1)]
        return " ".join(reference[i] if 0 <= i < len(reference) else "other" for i in at), " ".join(reference)
    assert kind == "long"  # more moves than are tried; moves farther than allowed
    vocabulary = letters[:rng.randint(2, 8)] if rng.random() < 0.5 else [f"w{i}" for i in range(200)]
    reference = [rng.choice(vocabulary) for _ in range(rng.randint(60, 110))]
    cut = rng.randint(0, len(reference))
    return " ".join(edited(rng, reference[cut:] + reference[:cut], vocabulary)), " ".join(reference)


KINDS = ("few words", "many words", "shuffled", "empty lines", "one word", "cjk", "emoji", "spaces", "punctuation", "case", "unequal lengths", "beam")


def main():
    rng = random.Random(20061)
    metrics = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
    sets = []
    for number in range(200):
        kind = "long" if number % 10 == 9 else "mixed" if number % 10 == 8 else KINDS[number % len(KINDS)]
        size = rng.randint(1, 2) if kind == "long" else rng.choice([1, 1, 2, 5, 20])
        pairs = [pair_of(rng, rng.choice(KINDS) if kind == "mixed" else kind) for _ in range(size)]
        one = {"kind": kind, "hypotheses": [a for a, _ in pairs], "references": [b for _, b in pairs], "printed": {}}
        for name, metric in metrics.items():
            score = metric.corpus_score(one["hypotheses"], [one["references"]])
            one[name] = score.score.hex()
            one["printed"][name] = score.format(score_only=True)
        sets.append(one)
    signatures = {name: f"{metric.corpus_score(['a'], [['a']]).name}|{metric.get_signature()}" for name, metric in metrics.items()}
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"signatures": signatures, "sets": sets}, out)


if __name__ == "__main__":
    main()
