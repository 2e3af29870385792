#!/usr/bin/env python3
"""Judges models whose vocabulary has been trimmed or extended, of tokenizer.json and of piece tables.

usage: vocabulary_judge.py TOKENIZE EXPORT SOURCE TARGET

transformers makes a small model for each kind of tokenizer. EXPORT trims it to the first lines of SOURCE (and TARGET), and extends it by words. In
the folders that it writes, the library of Hugging Face must encode the lines to the same pieces as before, unless new ones are among them, and give them the same logits; a word that was added must be one piece. TOKENIZE (tests/system/tokenizer) must give the library's ids, and the library's text of these, for lines of many scripts.
Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import json
import os
import shutil
import subprocess
import sys

import import_judge  # ends with 77 where something is missing
import table_judge
import tokenizer_judge
import torch
import transformers
from tokenizers import Tokenizer

KINDS = ("gpt2", "llama3", "qwen2", "byte-normalizer", "llama2", "gemma", "t5", "xlm-r", "unigram-bytes", "nllb", "lower")
BARE = ("byte-normalizer", "lower")  # whose words have no blank
LINES = 400
USED = 60  # lines that the vocabulary is trimmed to
WORDS = ["abominably", "unquestionableness", "heavenwards"]


def made_model(name, make, folder):
    """A language model of transformers, with more rows than its tokenizer has pieces."""
    tokenizer = make()
    tokenizer.add_tokens(tokenizer_judge.MORE)
    os.makedirs(folder)
    tokenizer.save(f"{folder}/tokenizer.json")
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    end = next(tokenizer.token_to_id(piece) for piece in ("<|endoftext|>", "</s>", "<|eot|>") if tokenizer.token_to_id(piece) is not None)
    size = tokenizer.get_vocab_size() + 7
    ids = {"vocab_size": size, "eos_token_id": end, "bos_token_id": tokenizer.token_to_id("<s>"), "pad_token_id": None}
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model("llama", **(import_judge.LANGUAGE | ids | {"tie_word_embeddings": name == "llama3"}))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return tokenizer


def tokenize(program, path, lines, side=()):
    done = subprocess.run([program, path, *side], input=json.dumps(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def new_ids(folder):
    with open(f"{folder}/vocab_map.json", encoding="utf-8") as file:
        return json.load(file)["new_ids"]


def check_logits(old_folder, new_folder, lines_of_ids, ids):
    """Old ids of lines; the new model must see the same in their new ones."""
    kind = transformers.AutoModelForCausalLM
    old, new = (kind.from_pretrained(folder, dtype=torch.float32).eval() for folder in (old_folder, new_folder))
    kept = [i for i, j in enumerate(ids) if j is not None]
    for line in lines_of_ids:
        with torch.no_grad():
            was = old(torch.tensor([line])).logits[0][:, kept]
            now = new(torch.tensor([[ids[i] for i in line]])).logits[0][:, [ids[i] for i in kept]]
        if not torch.allclose(was, now, rtol=0, atol=1e-5):
            sys.exit(f"{new_folder}: logits differ by {(was - now).abs().max()}")


def check_json(name, make, program, export, used, lines):
    folder, trimmed, extended = (f"vocabulary.{name}{end}" for end in ("", ".trimmed", ".extended"))
    old = made_model(name, make, folder)
    import_judge.run(export, "--from", f"hf:{folder}", "--format", "hf", "--vocab-trim", "vocabulary.used", "--verify", "--out", trimmed)
    spelled = "vocabulary.bare" if name in BARE else "vocabulary.words"
    import_judge.run(export, "--from", f"hf:{folder}", "--format", "hf", "--vocab-extend", spelled, "--vocab-text", "vocabulary.used", "--verify", "--out", extended)
    sizes = []
    for out in (trimmed, extended):
        new, ids = Tokenizer.from_file(f"{out}/tokenizer.json"), new_ids(out)
        sizes.append(new.get_vocab_size())
        encoded = [old.encode(line, add_special_tokens=False).ids for line in used]
        for line, was in zip(used, encoded):
            now = new.encode(line, add_special_tokens=False).ids
            if now != [ids[i] for i in was] and set(now) <= set(ids):
                sys.exit(f"{out}: {line!r} has the ids {now}, and had those of {[ids[i] for i in was]}")
        for line, answer in zip(lines, tokenize(program, f"{out}/tokenizer.json", lines), strict=True):
            theirs = new.encode(line, add_special_tokens=False).ids
            if theirs != answer["ids"] or new.decode(theirs) != answer["text"]:
                sys.exit(f"{out}: {line!r} has the ids {theirs}, ours are {answer['ids']}")
        check_logits(folder, out, [line[:50] for line in encoded[:5]], ids)
        wrapped = transformers.AutoTokenizer.from_pretrained(out)
        if wrapped.encode(used[0], add_special_tokens=False) != new.encode(used[0], add_special_tokens=False).ids:
            sys.exit(f"{out}: AutoTokenizer reads it otherwise")
    for word in WORDS:
        split = new.encode(f"a {word}", add_special_tokens=False).tokens
        if "".join(split[-1:]).strip("▁Ġ") != word:
            sys.exit(f"{extended}: {word} is {split}")
    if sizes[0] >= old.get_vocab_size() or sizes[1] < old.get_vocab_size() + len(WORDS):
        sys.exit(f"{name}: {old.get_vocab_size()} pieces became {sizes}")
    print(f"{name}: {old.get_vocab_size()} pieces, trimmed {sizes[0]}, extended {sizes[1]}")


def check_table(kind, program, export, texts, used, lines):
    folder, trimmed, extended = (f"vocabulary.{kind}{end}" for end in ("", ".trimmed", ".extended"))
    _, old = table_judge.make_model(kind, folder, texts)
    import_judge.run(export, "--from", f"hf:{folder}", "--format", "hf", "--vocab-trim", "vocabulary.used", "--verify", "--out", trimmed)
    import_judge.run(export, "--from", f"hf:{folder}", "--format", "hf", "--vocab-extend", "vocabulary.words", "--vocab-text", "vocabulary.used", "--verify", "--out", extended)
    for out in (trimmed, extended):
        new, ids = table_judge.TablePieces(out, kind), new_ids(out)
        transformers.AutoModelForSeq2SeqLM.from_pretrained(out)
        checkpoint = f"{out}.ckpt"
        import_judge.run(export, "--from", f"hf:{out}", "--format", "argosy", "--out", checkpoint)
        for was, now, side in ((old, new, "source"), (old.target, new.target, "target")):
            for line in used:
                if now.encode(line) != [ids[i] for i in was.encode(line)] and set(now.encode(line)) <= set(ids):
                    sys.exit(f"{out}: {line!r} has the ids {now.encode(line)}, and had those of {was.encode(line)}")
            for line, answer in zip(lines, tokenize(program, f"{checkpoint}/tokenizer.model", lines, (side,)), strict=True):
                if now.encode(line) != answer["ids"]:
                    sys.exit(f"{out}: {line!r} has the ids {now.encode(line)}, ours are {answer['ids']}")
    for side in (new, new.target):
        for word in WORDS:
            if side.encode(word, out_type=str) != [f"▁{word}"]:
                sys.exit(f"{extended}: {word} is {side.encode(word, out_type=str)}")
    print(f"{kind}: {len(old.tokenizer)} pieces, trimmed {len(table_judge.TablePieces(trimmed, kind).tokenizer)}, extended {len(new.tokenizer)}")


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    program, export, source, target, *chosen = sys.argv[1:]
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    verses = [open(path, encoding="utf-8").read().split("\n")[:-1] for path in (source, target)]
    used = verses[0][:USED] + verses[1][:USED]
    lines = tokenizer_judge.lines_of(LINES, verses[0] + verses[1])
    for name, content in (("used", used), ("words", [f" {word}" for word in WORDS]), ("bare", WORDS)):
        with open(f"vocabulary.{name}", "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in content)
    text = verses[0][:1000] + list(tokenizer_judge.SCRIPTS.values()) * 20
    found = tokenizer_judge.kinds(text, source)
    for name in KINDS:
        if not chosen or name in chosen:
            shutil.rmtree(f"vocabulary.{name}", ignore_errors=True)
            check_json(name, found[name], program, export, used, lines)
    for kind in table_judge.MODELS:
        if not chosen or kind in chosen:
            special = ("<s>", "</s>", "<unk>", "<pad>", "__", ">>", "\n", "\r")
            check_table(kind, program, export, (source, target), used, [line for line in lines if not any(piece in line for piece in special)])


if __name__ == "__main__":
    main()
