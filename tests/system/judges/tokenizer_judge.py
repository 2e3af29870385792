#!/usr/bin/env python3
"""Judges how Argosy reads tokenizer.json: ids and texts must be those of Hugging Face's library `tokenizers`.

usage: tokenizer_judge.py TOKENIZE SOURCE LINES [KIND…]

Tokenizers built like those of known models are trained on SOURCE and on lines of many scripts. For LINES lines, TOKENIZE (tests/system/
tokenizer) and the library must give the same ids, and the same text of these and of random ids; from 10,000 lines on also for each
character by itself. The last line of the output compares the speed. Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import json
import os
import random
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
try:
    import sentencepiece
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

SCRIPTS = {
    "latin": "the Quick brown fóx façade naïve Straße ÆØÅ żółć ſ İstanbul ıŞ ﬁne ﬀ Ǆ ½ ² ª ℡ ① Ⅷ \u00adsoft", "cyrillic": "Привет мир ёж Ёлка Щука ЂЏ ѣ і́",
    "greek": "Ελλάδα ὀδός ΌΔΟΣ σς Ω ᾧ", "arabic": "السلام عليكم لُغَة ١٢٣ ﷺ ﻻ \u0600١ پچ", "hebrew": "שלום עולם בְּרֵאשִׁית", "devanagari": "नमस्ते दुनिया क्षत्रिय हिन्दी १२३ कि्", "thai": "สวัสดีชาวโลก ก็ กำ น้ำ ๑๒๓",
    "cjk": "你好，世界。日本語の文章 カタカナ ｶﾞ ㍿ ２０２４ 㐀 𠀀 ー・「」", "hangul": "안녕하세요 한국어 \u1112\u1161\u11ab 각", "emoji": "😀 👩\u200d👩\u200d👧 🇫🇷🇩🇪🇫 👍🏽 ❤️ 1️⃣ 🏴\U000e0067\U000e007f ☃", "code": "if(x==0){return -1;}//a_b x+=1; <br/> #include <a> foo::bar() a->b \\n $x @y `z` ~/^|",
    "marks": "e\u0301 a\u0308\u0301 \u0301x n\u0303o q\u0307\u0323 A\u030a ö\u0327", "numbers": "1 12 123 1234 12345 3.14 1,000 0x1F 2024-01-31 ١٢ ४५ ½Ⅷ²",
    "contractions": "I'm you're it's don't WE'LL I'VE he'd 'S 'ſ 'll 'LLx O'Neil ’s ‘t", "brackets": "<s> </s> <unk> <0x41> <|endoftext|> <|eot|> [TAG] <pad> ▁ ▁▁a Ġ Ċ Â©"}
BLANKS = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\r", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", " \n", "\n ", "\t\t", "\x0b", "\x0c", "\u200b", "\ufeff", "\u1680"]
ODD = ["\x00", "\x01", "\x07", "\x1f", "\x7f", "\x9f", "\x8f", "\ufffd", "\ue000", "\U0010ffff", "\u0378", "\ufdd0", "\u200d", "\u200c", "\u2581", "\u180e", "\u2060", "\u202e"]
NAMES = ["<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<|eot|>", "[TAG]", "  [TAG]", "Yesterday", "yesterday", "xYesterday", "<w>", "a<w>", " <w> ", "<l>", "  <l>  ", "<r>", "  <r>  x", "<lr>", "<|long|>", "<|long|>er", "Été x", "aÉté x ", "été x"]


def lines_of(count, verses):
    """The same lines at each call."""
    rng = random.Random(20240131)
    words = [word for text in SCRIPTS.values() for word in text.split(" ")]
    lines = ["", " ", "  ", "\n", "a", " a", "a ", "\u0301", "<s>", " <s> ", "\r\n", "'s", "\x00"]
    while len(lines) < count:
        kind = rng.randrange(6)
        if kind == 0:
            line = rng.choice(verses)
        elif kind == 1:
            line = SCRIPTS[rng.choice(list(SCRIPTS))]
        else:
            pick = rng.choice(list(SCRIPTS.values())).split(" ") if kind < 4 else words
            line = ""
            for _ in range(rng.randint(1, 14)):
                line += rng.choice(pick)
                what = rng.random()
                if what < 0.6:
                    line += " "
                elif what < 0.8:
                    line += rng.choice(BLANKS)
                elif what < 0.88:
                    line += rng.choice(ODD)
                elif what < 0.95:
                    line += rng.choice(NAMES)
                elif what < 0.97:
                    line += chr(rng.choice([rng.randint(0x21, 0x24f), rng.randint(0x370, 0x52f), rng.randint(0x900, 0x97f), rng.randint(0x4e00, 0x9fa5), rng.randint(0xac00, 0xd7a3)]))
        if rng.random() < 0.2:
            at = rng.randint(0, len(line))
            line = line[:at] + rng.choice(BLANKS) * rng.randint(1, 4) + line[at:]
        lines.append(line)
    return lines[:count]


def lines_of_characters():
    """Every character that regular expressions, NFC and maps of characters may know."""
    return [f"a{c}b {c}1 {c}{c} .{c}'{c}s" for c in map(chr, [*range(1, 0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200)])]


def special(content, **options):
    return AddedToken(content, special=True, normalized=False, **options)


MORE = [special("<|eot|>"), special("<|long|>"), special("<|long|>er"), AddedToken("[TAG]", normalized=False), AddedToken("Yesterday", normalized=True, single_word=True),
        AddedToken("<w>", single_word=True, normalized=False), AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
        AddedToken("<lr>", lstrip=True, rstrip=True, normalized=True), AddedToken("Été x", normalized=True)]
GPT2 = None  # ByteLevel's own
EACH_CHARACTER = ("gpt2", "llama3", "qwen2", "t5-old")  # others use tables of the library that are older than ICU's (FORMAT.md)
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]


def with_fields(tokenizer, **fields):
    """The tokenizer with other values in its model."""
    whole = json.loads(tokenizer.to_str())
    whole["model"] |= fields
    return Tokenizer.from_str(json.dumps(whole))


def byte_level(text, split, normalizer=None, prefix=False, ignore_merges=False, maps=True):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated", invert=False) for pattern in split or []]
    bytes_ = [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=not splits)] if maps else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + bytes_)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    return with_fields(tokenizer, ignore_merges=ignore_merges)


def byte_fallback(text, metaspace):
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"] + bytes_, limit_alphabet=120, max_token_length=12)
    tokenizer.train_from_iterator((word for line in text for word in line.split(" ")), trainer)  # as words: few pieces with blanks inside
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = whole["added_tokens"][:3]  # bytes are ordinary pieces
    tokenizer = Tokenizer.from_str(json.dumps(whole))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def field_of(message, wanted):
    """The bytes of a field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        size = {0: 0, 1: 8, 5: 4}.get(key & 7)
        size = varint() if size is None else size
        if key & 7 == 0:
            varint()
        elif key >> 3 == wanted:
            return message[at:at + size]
        at += size
    sys.exit(f"no field {wanted}")


def charsmap(source, rule):
    """The map of characters that SentencePiece compiles for a rule."""
    sentencepiece.SentencePieceTrainer.train(input=source, model_prefix="tokenizer_judge", vocab_size=300, normalization_rule_name=rule, minloglevel=2)
    with open("tokenizer_judge.model", "rb") as file:
        return field_of(field_of(file.read(), 3), 2)


def unigram(text, normalizer, pre_tokenizer, bytes_=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(text, trainers.UnigramTrainer(vocab_size=1200, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                                                initial_alphabet=list("abcdefghijklmnopqrstuvwxyz")))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    if bytes_:
        vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
        vocabulary = [piece for piece in vocabulary if piece[0].isascii() or "▁" in piece[0]][:600] + [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
        tokenizer = with_fields(tokenizer, vocab=vocabulary, byte_fallback=True)
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def word_bpe(text, normalizer, pre_tokenizer, decoder=None, fuse=True):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(text, trainers.BpeTrainer(vocab_size=1200, show_progress=False, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], limit_alphabet=150))
    if decoder:
        tokenizer.decoder = decoder
    return tokenizer


def kinds(text, source):
    """Name → a function that makes the tokenizer."""
    N, P = normalizers, pre_tokenizers
    nmt_nfkc, identity_like = charsmap(source, "nmt_nfkc"), charsmap(source, "nfkc_cf")
    words = lambda: P.Sequence([P.WhitespaceSplit(), P.Metaspace()])
    found = {
        "gpt2": lambda: byte_level(text, GPT2), "gpt2-prefix": lambda: byte_level(text, GPT2, prefix=True),
        "llama3": lambda: byte_level(text, [LLAMA3], ignore_merges=True), "qwen2": lambda: byte_level(text, [QWEN2], normalizer=N.NFC()),
        "byte-normalizer": lambda: byte_level(text, ["Ġ+"], normalizer=N.Sequence([N.NFC(), N.ByteLevel()]), maps=False),
        "o200k": lambda: byte_level(text, [O200K]), "deepseek": lambda: byte_level(text, DEEPSEEK),
        "llama2": lambda: byte_fallback(text, None), "llama2-first": lambda: byte_fallback(text, "first"), "mistral": lambda: byte_fallback(text, "always"), "gemma": lambda: byte_fallback(text, "never"),
        "t5": lambda: unigram(text, N.Sequence([N.Precompiled(nmt_nfkc), N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "▁")]), P.Metaspace(prepend_scheme="first")),
        "t5-old": lambda: unigram(text, N.Precompiled(nmt_nfkc), words()),
        "pegasus": lambda: unigram(text, N.Sequence([N.Precompiled(identity_like), N.Replace(Regex(" {2,}"), " ")]), words()),
        "xlm-r": lambda: unigram(text, N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace()),
        "unigram-bytes": lambda: unigram(text, N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, bytes_=True),
        "nllb": lambda: word_bpe(text, N.Sequence([N.Precompiled(nmt_nfkc), N.Replace(Regex(" {2,}"), " ")]), P.Metaspace(), decoders.Metaspace()),
        "lower": lambda: word_bpe(text, N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents(), N.Strip()]), P.Sequence([P.Whitespace(), P.Digits(individual_digits=True)]), fuse=False),
        "punctuation": lambda: word_bpe(text, N.NFKD(), P.Sequence([P.WhitespaceSplit(), P.Punctuation("merged_with_previous"), P.Digits()]), decoders.Fuse()),
    }
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            found[f"split-{behavior}{'-inverted' if invert else ''}"] = lambda behavior=behavior, invert=invert: word_bpe(
                text[:200], N.NFC(), P.Sequence([P.Split(Regex(r"\p{P}|\s{2}|[aeiou]*"), behavior, invert=invert), P.Split("th", behavior, invert=invert)]))
    return found


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    tokenize, source, count, chosen = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    with open(source, encoding="utf-8") as file:
        verses = file.read().split("\n")[:-1]
    lines = lines_of(count, verses)
    text = verses[:1000] + list(SCRIPTS.values()) * 20
    rng = random.Random(7)
    every_character = lines_of_characters() if count >= 10000 else []
    failed, total = 0, {"ours": 0.0, "theirs": 0.0, "tokens": 0}
    for name, make in kinds(text, source).items():
        if chosen and name not in chosen:
            continue
        tokenizer, all_lines = make(), lines + (every_character if name in EACH_CHARACTER else [])
        tokenizer.add_tokens(MORE)
        tokenizer.save(f"tokenizer_judge.{name}.json")
        tokenizer = Tokenizer.from_file(f"tokenizer_judge.{name}.json")  # whose reader rounds scores
        size = tokenizer.get_vocab_size()
        random_ids = [[rng.randrange(size + 3) for _ in range(rng.randint(0, 12))] for _ in range(count // 10)]
        with open("tokenizer_judge.texts", "w", encoding="utf-8") as file:
            json.dump(all_lines + random_ids, file)
        with open("tokenizer_judge.texts", encoding="utf-8") as file:
            done = subprocess.run([tokenize, f"tokenizer_judge.{name}.json"], stdin=file, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}: {done.stderr}")
        answers, measured = json.loads(done.stdout), json.loads(done.stderr)
        begin = time.perf_counter()
        wanted = [tokenizer.encode(line, add_special_tokens=False).ids for line in all_lines]
        theirs = time.perf_counter() - begin
        wrong = []
        for line, ids, answer in zip(all_lines, wanted, answers):
            if ids != answer["ids"]:
                wrong.append(f"ids of {line!r}: {ids}, ours {answer['ids']}")
            elif tokenizer.decode(ids) != answer["text"]:
                wrong.append(f"text of {line!r}: {tokenizer.decode(ids)!r}, ours {answer['text']!r}")
        for ids, answer in zip(random_ids, answers[len(all_lines):], strict=True):
            if tokenizer.decode(ids) != answer["text"]:
                wrong.append(f"text of {ids}: {tokenizer.decode(ids)!r}, ours {answer['text']!r}")
        print(f"{name}: {len(wrong)} of {len(answers)} differ; {measured['tokens'] / measured['encode_s']:,.0f} tokens/s, the library {measured['tokens'] / theirs:,.0f}")
        for sentence in wrong[:5]:
            print(f"  {sentence}")
        failed += bool(wrong)
        total["ours"] += measured["encode_s"]
        total["theirs"] += theirs
    print(f"{failed} kinds differ; Argosy needs {total['ours'] / total['theirs']:.2f} of the library's time")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
