#!/usr/bin/env python3
"""Judges tokenizers that consist of SentencePiece models and a table of ids: OPUS-MT's, with a model for each side, and M2M-100's.

usage: table_judge.py TOKENIZE EXPORT TRANSLATE SOURCE TARGET

transformers makes a small model with such a tokenizer, whose SentencePiece models are trained on SOURCE and TARGET. EXPORT turns its folder into a
checkpoint. TOKENIZE (tests/system/tokenizer) must give the ids of transformers for 2,000 lines of each side, and the text of ids that
SentencePiece gives. TRANSLATE must translate as transformers does, and give targets the same probabilities. The files of the tokenizer must
come back from the checkpoint byte for byte, also by way of a CTranslate2 folder, with which CTranslate2 translates alike. Lines with the
spelling of a special piece are left out: transformers takes them for that piece, Argosy for text.
Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import json
import os
import random
import subprocess
import sys

import import_judge  # ends with 77 where something is missing
import sentencepiece
import tokenizer_judge
import torch
import transformers

LINES = 2000
MODELS = {"marian": ("source.spm", "target.spm"), "m2m_100": ("sentencepiece.bpe.model",)}


class TablePieces:
    """A tokenizer of transformers with the functions of a SentencePieceProcessor. -1: no such id."""

    def __init__(self, folder, kind, is_target=False):
        languages = {} if kind == "marian" else {"src_lang": "en", "tgt_lang": "es"}
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **languages)
        self.models = [sentencepiece.SentencePieceProcessor(f"{folder}/{name}") for name in MODELS[kind]]
        self.is_target = is_target
        self.target = self if is_target else TablePieces(folder, kind, True)

    def encode(self, line, out_type=int):
        (self.tokenizer._switch_to_target_mode if self.is_target else self.tokenizer._switch_to_input_mode)()
        tokens = self.tokenizer.tokenize(line)
        ids = self.tokenizer.convert_tokens_to_ids(tokens)
        return ids if out_type is int else self.tokenizer.convert_ids_to_tokens(ids)

    def decode(self, pieces):
        pieces = [self.id_to_piece(piece) if isinstance(piece, int) else piece for piece in pieces]
        spoken = [piece for piece in pieces if piece not in ("<s>", "</s>", "<pad>") and not (piece.startswith("__") and piece.endswith("__"))]
        return self.models[-1].decode_pieces(spoken).replace("▁", " ").strip(" ")

    def piece_to_id(self, piece):
        return self.tokenizer.convert_tokens_to_ids(piece)

    def id_to_piece(self, i):
        return self.tokenizer.convert_ids_to_tokens(i)

    def bos_id(self):
        return -1

    def eos_id(self):
        return self.tokenizer.eos_token_id

    def unk_id(self):
        return self.tokenizer.unk_token_id


def train(path, texts, size):
    options = {"model_type": "bpe"} if "bpe" in path else {}
    sentencepiece.SentencePieceTrainer.train(input=texts, model_prefix=path, vocab_size=size, minloglevel=2, **options)
    os.rename(f"{path}.model", path)
    return sentencepiece.SentencePieceProcessor(path)


def make_tokenizer(kind, folder, texts):
    """Pieces of both sides in one table, in an order of its own; a language's code among Marian's, as OPUS-MT has them."""
    pieces = [train(f"{folder}/{name}", text, size) for name, text, size in zip(MODELS[kind], texts if len(MODELS[kind]) > 1 else [",".join(texts)], (300, 400))]
    known = {model.id_to_piece(i) for model in pieces for i in range(3, model.get_piece_size())}
    order = sorted(known)
    random.Random(5).shuffle(order)
    order = ["</s>", "<unk>", *order, ">>fr<<", "<pad>"] if kind == "marian" else ["<s>", "<pad>", "</s>", "<unk>", *order]
    with open(f"{folder}/vocab.json", "w", encoding="utf-8") as file:
        json.dump({piece: i for i, piece in enumerate(order)}, file, indent=2)
    paths = [f"{folder}/{name}" for name in MODELS[kind]]
    if kind == "marian":
        return transformers.MarianTokenizer(*paths, f"{folder}/vocab.json")
    return transformers.M2M100Tokenizer(f"{folder}/vocab.json", *paths, src_lang="en", tgt_lang="es")


def make_model(kind, folder, texts):
    os.makedirs(folder)
    tokenizer = make_tokenizer(kind, folder, texts)
    size = len(json.load(open(f"{folder}/vocab.json", encoding="utf-8")))
    ids = ({"vocab_size": size, "decoder_vocab_size": size, "pad_token_id": size - 1, "decoder_start_token_id": size - 1} if kind == "marian"
           else {"vocab_size": size + 100 + 8})  # languages, and 8 that mean nothing
    config = transformers.AutoConfig.for_model(kind, **(import_judge.SIZES[kind] | ids))
    torch.manual_seed(7)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)
    if kind == "marian":
        with torch.no_grad():
            model.final_logits_bias.normal_()
            model.final_logits_bias[0, size - 1] = -1e4  # Argosy gives the padding no probability
            model.get_input_embeddings().weight[size - 1] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval(), TablePieces(folder, kind)


def check_ids(kind, tokenize, checkpoint, pieces, lines):
    rng = random.Random(7)
    drawn = [[rng.randrange(len(pieces.tokenizer)) for _ in range(rng.randint(0, 12))] for _ in range(LINES // 10)]
    for side in (pieces, pieces.target):
        name = "target" if side.is_target else "source"
        done = subprocess.run([tokenize, f"{checkpoint}/tokenizer.model", name], input=json.dumps(lines + drawn), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{kind}: exit code {done.returncode}: {done.stderr}")
        answers = json.loads(done.stdout)
        wrong = [(line, side.encode(line), answer["ids"]) for line, answer in zip(lines, answers) if side.encode(line) != answer["ids"]]
        wrong += [(ids, side.decode(ids), answer["text"]) for ids, answer in zip(drawn, answers[len(lines):], strict=True) if side.decode(ids) != answer["text"]]
        print(f"{kind}, {name}: {len(wrong)} of {len(answers)} differ")
        if wrong:
            sys.exit("\n".join(f"  {line!r}: {theirs!r}, ours {ours!r}" for line, theirs, ours in wrong[:5]))


def check_languages(model, pieces, lines, command):
    """Language tokens, which apps/translate takes by name."""
    tokenizer = pieces.tokenizer
    tokenizer.src_lang = "en"
    ours = import_judge.run(*command, "--source-prefix", "__en__", "--target-prefix", "__es__").split("\n")[:-1]
    for line, text in zip(lines, ours, strict=True):
        ids = tokenizer(line)["input_ids"]
        with torch.no_grad():
            found = model.generate(torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=import_judge.MAX_LENGTH, max_length=None,
                                   forced_bos_token_id=tokenizer.get_lang_id("es"), suppress_tokens=[tokenizer.pad_token_id])[0].tolist()
        if pieces.decode([i for i in found[1:] if i < len(tokenizer)]).strip() != text.strip():
            sys.exit(f"{line!r}: {text!r}, transformers' is {pieces.decode(found)!r}")
    print(f"languages: {len(lines)} lines identical")


def check_files(kind, before, after):
    for name in ("vocab.json", *MODELS[kind]):
        with open(f"{before}/{name}", "rb") as old, open(f"{after}/{name}", "rb") as new:
            if old.read() != new.read():
                sys.exit(f"{after}/{name} came back with other bytes")


def judge(kind, tokenize, export, translate, texts, lines):
    run, few = import_judge.run, lines[:20]
    folder, checkpoint, again, ct2, back = (f"table.{kind}{end}" for end in ("", ".ckpt", ".again", ".ct2", ".back"))
    model, pieces = make_model(kind, folder, texts)
    run(export, "--from", f"hf:{folder}", "--format", "argosy", "--out", checkpoint)
    special = {piece for piece in pieces.tokenizer.all_special_tokens}
    odd = [line for line in tokenizer_judge.lines_of(LINES, lines) if not any(piece in line for piece in special)]
    check_ids(kind, tokenize, checkpoint, pieces, (lines + [">>fr<< " + lines[0], ">>fr<<", ">>xx<<" + lines[1], ">>fr", " >>fr<< a", "<< >>fr<<"] + odd)[:LINES])
    with open("table.lines", "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in few)
    options = ["--beam", "1", "--max-length", str(import_judge.MAX_LENGTH), "--max-length-factor", "0", "--scores", "--input", "table.lines"]
    said = [line.split("\t", 1) for line in run(translate, checkpoint, *options).split("\n")[:-1]]
    ours = [(float(score), text) for score, text in said]
    import_judge.PIECES = len(pieces.tokenizer) - (kind == "marian")  # the padding is no piece of Argosy's
    import_judge.check_lines(kind, few, ours, [import_judge.theirs(model, pieces, line) for line in few], import_judge.BOUND)
    worst = import_judge.worst_of_targets(model, pieces, few, (translate, checkpoint))
    print(f"{kind}: pieces of targets within {worst:.1e}")
    if worst > import_judge.BOUND:
        sys.exit(1)
    if kind == "m2m_100":
        options.remove("--scores")
        check_languages(model, pieces, few, (translate, checkpoint, *options))
    run(export, checkpoint, "--format", "ct2", "--out", ct2)
    decoded = [(score, pieces.decode(hypothesis)) for score, hypothesis in import_judge.of_ctranslate2(ct2, model, pieces, few)]
    import_judge.check_lines(f"{kind}, CTranslate2", few, ours, decoded, 1e-3)
    for source, out in ((checkpoint, again), (ct2, back)):
        run(export, source, "--format", "hf", "--out", out)
        check_files(kind, folder, out)
        import_judge.check_tensors(import_judge.Case(kind, kind), folder, out)
        reread = TablePieces(out, kind)
        if any(reread.encode(line) != pieces.encode(line) for line in few):
            sys.exit(f"{out}: transformers reads the tokenizer that comes back otherwise")


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    tokenize, export, translate, *texts = sys.argv[1:]
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    lines = [line for text in texts for line in open(text, encoding="utf-8").read().split("\n")[:500]]
    for kind in MODELS:
        judge(kind, tokenize, export, translate, texts, lines)


if __name__ == "__main__":
    main()
