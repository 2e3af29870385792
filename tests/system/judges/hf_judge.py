#!/usr/bin/env python3
"""Judges a Hugging Face folder: transformers must open it without a warning and translate (or continue, for a language model)
greedily as apps/translate does, and its tokenizer must give SentencePiece's ids.

usage: hf_judge.py TRANSLATE CHECKPOINT HF_FOLDER SOURCE

At least 99 % of the lines are identical, and the scores of identical lines agree within 1e-4. Ids are compared on the lines of
SOURCE and on lines with blanks, other scripts and characters that the model does not know. Exit code 1 names what differs;
77: the judges' environment is missing.
"""

import io
import json
import logging
import os
import subprocess
import sys
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import sentencepiece
    import torch
    import transformers
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

MAX_LENGTH = 48
ODD_LINES = ["", " ", "  two  blanks  ", "\ttab\there", "漢字かな交じり文", "ﬁ ligature ½", "emoji 🙂 and accents é ñ ü", "a" * 300, "1,234.56 (x) [y] {z}"]


def ours(translate, checkpoint, source):
    command = [translate, checkpoint, "--beam", "1", "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--scores"]
    with open(source, "rb") as lines:
        run = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return [(float(score), text) for score, text in (line.split("\t", 1) for line in run.stdout.split("\n")[:-1])]


def opened(folder):
    """Model and tokenizer, in silence: a warning is a failure."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    transformers.utils.logging.disable_progress_bar()
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    kind = transformers.AutoModelForSeq2SeqLM if config.get("is_encoder_decoder") else transformers.AutoModelForCausalLM
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    logger.removeHandler(handler)
    missing = {name: sorted(map(str, value)) for name, value in info.items() if value}
    if missing:
        sys.exit(f"{folder}: {missing}")
    # Marian's tokenizer asks for a package that normalises punctuation, which Argosy's models do without.
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning) and "sacremoses" not in str(w.message)]
    if said.getvalue() or told:
        sys.exit(f"{folder}: {said.getvalue()} {told}")
    if type(model).__name__ != config["architectures"][0]:
        sys.exit(f"{folder}: {type(model).__name__} instead of {config['architectures']}")
    return model.eval(), tokenizer


def check_ids(folder, tokenizer, lines, translates):
    pieces = sentencepiece.SentencePieceProcessor(f"{folder}/source.spm" if os.path.exists(f"{folder}/source.spm") else f"{folder}/tokenizer.model")
    for line in lines + ODD_LINES:
        expected = pieces.encode(line)
        expected = expected + [pieces.eos_id()] if translates else [pieces.bos_id()] + expected
        got = tokenizer(line)["input_ids"]
        if got != expected:
            sys.exit(f"{folder}: the ids of {line!r} are {got}, SentencePiece's are {expected}")
        if pieces.unk_id() not in expected and tokenizer.decode(got, skip_special_tokens=True).strip() != pieces.decode(pieces.encode(line)).strip():
            sys.exit(f"{folder}: {line!r} comes back as {tokenizer.decode(got, skip_special_tokens=True)!r}")


def theirs(model, tokenizer, line, translates):
    inputs = tokenizer(line, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    never = None if translates else [tokenizer.bos_token_id]  # apps/translate never chooses the start
    with torch.no_grad():
        made = model.generate(**inputs, num_beams=1, suppress_tokens=never, do_sample=False, max_new_tokens=MAX_LENGTH, max_length=None, forced_eos_token_id=None,
                              return_dict_in_generate=True, output_scores=True)
    steps = model.compute_transition_scores(made.sequences, made.scores, normalize_logits=True)[0]
    ids = made.sequences[0][1:] if translates else made.sequences[0][inputs["input_ids"].shape[1]:]
    return float(steps.mean()), tokenizer.decode(ids, skip_special_tokens=True).strip()


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    translate, checkpoint, folder, source = sys.argv[1:]
    torch.set_num_threads(2)
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    model, tokenizer = opened(folder)
    translates = model.config.is_encoder_decoder
    check_ids(folder, tokenizer, lines, translates)
    same, worst = 0, 0.0
    pairs = list(zip(lines, ours(translate, checkpoint, source), strict=True))
    for line, (score, text) in pairs:
        their_score, their_text = theirs(model, tokenizer, line, translates)
        if text.strip() == their_text:
            same += 1
            worst = max(worst, abs(score - their_score))
    print(f"{type(model).__name__}: {same} of {len(pairs)} lines identical, scores within {worst:.1e}")
    if same < 0.99 * len(pairs) or worst > 1e-4:
        sys.exit(1)


if __name__ == "__main__":
    main()
