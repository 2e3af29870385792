#!/usr/bin/env python3
"""Judges a Hugging Face folder: transformers must open it without a warning and translate (or continue, for a language model)
greedily as apps/translate does, also with penalties; it must give translations (or continuations) the probabilities of
apps/translate --score; its cross-attention must give the same alignments; and its tokenizer must give SentencePiece's ids.

usage: hf_judge.py TRANSLATE CHECKPOINT HF_FOLDER SOURCE [BF16_FOLDER]

At least 99 % of the lines are identical, and the scores of identical lines agree within 1e-4, as do those of all pieces that
are given. Ids are compared on the lines of
SOURCE and on lines with blanks, other scripts and characters that the model does not know. BF16_FOLDER is the checkpoint in bf16:
transformers computes in bf16 with it, and all pieces must score as apps/translate --score says of the checkpoint in fp32, within bf16_bound().
Exit code 1 names what differs; 77: the judges' environment is missing.
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
PENALTIES = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3}, ["--repetition-penalty", "1.3", "--no-repeat-ngram", "3"]
ODD_LINES = ["", " ", "  two  blanks  ", "\ttab\there", "漢字かな交じり文", "ﬁ ligature ½", "emoji 🙂 and accents é ñ ü", "a" * 300, "1,234.56 (x) [y] {z}"]


def ours(command, lines):
    text = "".join(line + "\n" for line in lines)
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return [line.split("\t") for line in run.stdout.split("\n")[:-1]]


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
    # transformers 5 takes every T5 for tied, and says so where the file has two matrices, which it then keeps apart.
    heard = [line for line in said.getvalue().splitlines() if not (config["model_type"] == "t5" and "so we will NOT tie them" in line)]
    if heard or told:
        sys.exit(f"{folder}: {heard} {told}")
    if type(model).__name__ != config["architectures"][0]:
        sys.exit(f"{folder}: {type(model).__name__} instead of {config['architectures']}")
    return model.eval(), tokenizer


def check_ids(folder, tokenizer, pieces, lines, translates):
    for line in lines + ODD_LINES:
        expected = pieces.encode(line)
        expected = expected + [pieces.eos_id()] if translates else [pieces.bos_id()] + expected
        got = tokenizer(line)["input_ids"]
        if got != expected:
            sys.exit(f"{folder}: the ids of {line!r} are {got}, SentencePiece's are {expected}")
        if getattr(tokenizer, "separate_vocabs", False):  # ids of the source are no ids of the target, which it decodes
            continue
        if pieces.unk_id() not in expected and tokenizer.decode(got, skip_special_tokens=True).strip() != pieces.decode(pieces.encode(line)).strip():
            sys.exit(f"{folder}: {line!r} comes back as {tokenizer.decode(got, skip_special_tokens=True)!r}")


def theirs(model, tokenizer, line, translates, options):
    inputs = tokenizer(line, return_tensors="pt")
    inputs.pop("token_type_ids", None)
    # apps/translate never chooses the start, which in Marian and Pegasus has a bias that forbids it.
    never = [tokenizer.pad_token_id] if translates else [tokenizer.bos_token_id]
    options, processors = dict(options), transformers.LogitsProcessorList()
    if translates and "repetition_penalty" in options:  # transformers counts the start id too; Argosy and CTranslate2 do not
        processors.append(transformers.RepetitionPenaltyLogitsProcessor(options.pop("repetition_penalty"), prompt_ignore_length=1))
    with torch.no_grad():
        made = model.generate(**inputs, num_beams=1, suppress_tokens=never, do_sample=False, max_new_tokens=MAX_LENGTH, max_length=None, forced_eos_token_id=None,
                              return_dict_in_generate=True, output_scores=True, logits_processor=processors, **options)
    steps = model.compute_transition_scores(made.sequences, made.scores, normalize_logits=True)[0]
    ids = made.sequences[0][1:] if translates else made.sequences[0][inputs["input_ids"].shape[1]:]
    return float(steps.mean()), tokenizer.decode(ids, skip_special_tokens=True).strip()


def check_greedy(model, tokenizer, command, lines, translates, options):
    same, worst = 0, 0.0
    pairs = list(zip(lines, ours(command, lines), strict=True))
    for line, (score, text) in pairs:
        their_score, their_text = theirs(model, tokenizer, line, translates, options)
        if text.strip() == their_text:
            same += 1
            worst = max(worst, abs(float(score) - their_score))
    print(f"{type(model).__name__} {options}: {same} of {len(pairs)} lines identical, scores within {worst:.1e}")
    if same < 0.99 * len(pairs) or worst > 1e-4:
        sys.exit(1)
    return [text for _, (_, text) in pairs]


def bf16_bound(model, hidden):
    """How far log p may be off when weights and results are rounded to bf16. A rounding changes a number by a share whose root mean square
    is below 2^-9. A layer has at most 24 rounded tensors one after another, and the embedding and the output have 4. Independent errors add up as
    their squares do, so the last hidden state is off by 2^-9 * sqrt(24 * layers + 4) of its length, in a random direction: a logit, its product
    with a row w of width d, by |w| * |hidden| / sqrt(d) times that. Among the logits that are compared no error exceeds five such deviations.
    A log p is the difference of a logit and the logarithm of a sum of all, whose error is no larger: twice that."""
    config = model.config
    layers = sum(getattr(config, name, None) or 0 for name in ("encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers"))
    roundings = 24 * (layers or config.num_hidden_layers) + 4
    rows = model.get_output_embeddings().weight.detach().float()
    length = float(rows.norm(dim=1).max() * hidden.float().norm(dim=-1).max()) / hidden.shape[-1] ** 0.5
    if config.model_type == "t5" and model.get_output_embeddings().weight is model.get_input_embeddings().weight:  # which it divides
        length /= hidden.shape[-1] ** 0.5
    return 2 * 5 * 2**-9 * roundings**0.5 * length


def check_scores(model, pieces, targets, command, lines, found, translates):
    """Targets are what was found greedily, and other lines or the second half of a line. A model in fp32 must agree within 1e-4."""
    rounded = model.dtype == torch.bfloat16
    halves = [len(line) // 2 for line in lines]
    pairs = list(zip(lines, lines[1:] + lines[:1])) if translates else [(line[:at], line[at:]) for line, at in zip(lines, halves)]
    pairs += zip(lines, found) if translates else [(line, " " + text.lstrip(" ")) for line, text in zip(lines, found) if text.strip()]
    worst, greedy, bound = 0.0, 0, 1e-4
    for (source, target), fields in zip(pairs, ours(command, ["\t".join(pair) for pair in pairs]), strict=True):
        with torch.no_grad():
            if translates:
                labels = targets.encode(target) + [targets.eos_id()]
                made = model(input_ids=torch.tensor([pieces.encode(source) + [pieces.eos_id()]]), output_hidden_states=True,
                             decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id] + labels[:-1]]))
                logits, hidden = made.logits[0].float(), made.decoder_hidden_states[-1][0]
            else:
                whole, read = pieces.encode(source + target), len(pieces.encode(source.rstrip(" ")))
                labels = whole[read:]
                made = model(input_ids=torch.tensor([[pieces.bos_id()] + whole[:-1]]), output_hidden_states=True)
                logits, hidden = made.logits[0][read:].float(), made.hidden_states[-1][0]
        if rounded and len(labels):
            bound = max(bound, bf16_bound(model, hidden))
        log_p = torch.log_softmax(logits, -1)[range(len(labels)), labels]
        total, mean, count, is_greedy = fields[:4]
        if int(count) != len(labels) or (not rounded and bool(int(is_greedy)) != (logits.argmax(-1).tolist() == labels)):
            sys.exit(f"{source!r} {target!r}: {fields}, transformers' are {log_p.tolist()}")
        if not labels:  # the halves of the line are one piece
            continue
        greedy += int(is_greedy)
        pairs_of_pieces = zip(map(float, fields[4].split()), log_p.tolist(), strict=True)
        worst = max(worst, abs(float(total) - float(log_p.sum())) / len(labels), abs(float(mean) - float(log_p.mean())),
                    *(abs(a - b) for a, b in pairs_of_pieces))
    print(f"{type(model).__name__}, {model.dtype}: given pieces of {len(pairs)} lines score within {worst:.1e} (bound {bound:.1e}), {greedy} lines are greedy")
    if not worst <= bound or (rounded and worst < 1e-4) or (greedy == 0 and not translates):  # translations of a poor model have no end
        sys.exit(1)


def check_alignments(model, pieces, targets, command, lines):
    model.set_attn_implementation("eager")
    pairs = list(zip(lines, lines[1:] + lines[:1]))
    for layer in (1, getattr(model.config, "decoder_layers", None) or model.config.num_decoder_layers):
        same = count = 0
        for (source, target), fields in zip(pairs, ours(command + ["--alignment-layer", str(layer)], ["\t".join(pair) for pair in pairs]), strict=True):
            labels = targets.encode(target)
            with torch.no_grad():
                made = model(input_ids=torch.tensor([pieces.encode(source) + [pieces.eos_id()]]), output_attentions=True,
                             decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id] + labels[:-1]]))
            best = made.cross_attentions[layer - 1][0].mean(0)[:, :-1].argmax(-1).tolist()
            mine = [tuple(map(int, pair.split("-"))) for pair in fields[-1].split()]
            if [to for _, to in mine] != list(range(len(labels))):
                sys.exit(f"{source!r} {target!r}: {fields}")
            same, count = same + sum(a == b for (a, _), b in zip(mine, best)), count + len(labels)
        print(f"{type(model).__name__}: {same} of {count} pieces are aligned alike by layer {layer}")
        if same < 0.99 * count:
            sys.exit(1)


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    translate, checkpoint, folder, source = sys.argv[1:5]
    torch.set_num_threads(2)
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    model, tokenizer = opened(folder)
    translates = model.config.is_encoder_decoder
    spm = "source.spm" if os.path.exists(f"{folder}/source.spm") else "tokenizer.model"
    pieces = targets = sentencepiece.SentencePieceProcessor(f"{folder}/{spm}")
    if os.path.exists(f"{folder}/target.spm"):
        targets = sentencepiece.SentencePieceProcessor(f"{folder}/target.spm")
    check_ids(folder, tokenizer, pieces, lines, translates)
    greedy = [translate, checkpoint, "--beam", "1", "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--scores"]
    found = check_greedy(model, tokenizer, greedy, lines, translates, {})
    check_greedy(model, tokenizer, greedy + PENALTIES[1], lines, translates, PENALTIES[0])
    check_scores(model, pieces, targets, [translate, checkpoint, "--score", "--token-scores"], lines, found, translates)
    if translates:
        check_alignments(model, pieces, targets, [translate, checkpoint, "--score", "--alignments"], lines)
    if len(sys.argv) == 6:
        rounded = type(model).from_pretrained(sys.argv[5], dtype="auto").eval()
        if rounded.dtype != torch.bfloat16:
            sys.exit(f"{sys.argv[5]} is in {rounded.dtype}")
        check_scores(rounded, pieces, targets, [translate, checkpoint, "--score", "--token-scores"], lines, found, translates)


if __name__ == "__main__":
    main()
