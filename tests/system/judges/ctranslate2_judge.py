#!/usr/bin/env python3
"""Judges an export: CTranslate2 must translate (or continue, for a language model) as apps/translate does, greedy and with
beam 4, in fp32; and it must give the same four hypotheses, and translate alike with penalties and prefixes.

usage: ctranslate2_judge.py TRANSLATE CHECKPOINT CT2_FOLDER SOURCE [REFERENCE]

At least 99 % of the lines are identical or ties, and 90 % identical; the scores of identical lines agree within 1e-3. A tie is a line whose
hypotheses differ because the last bit of a sum decides which of two hypotheses the beam keeps. Either the final scores agree too: where one piece is
repeated, hypotheses that differ in one place score alike. Or the beam drops one of the two before the end, and both programs agree again as
soon as the repetition penalty changes by 1e-5. With a reference, BLEU, chrF and TER of the result line must equal sacreBLEU's.
Exit code 1 names what differs; 77: the judges' environment is missing.

CTranslate2 may choose what apps/translate never does, the start id and pad, and is told not to. It ends no hypothesis right after a
prefix, even an empty one, unless the end is the likeliest piece there; Argosy's search has no such exception, and may find a better hypothesis that
ends there. So translations with a prefix have a least length here, which is beyond all prefixes. Prompts are continued one by one: of several,
CTranslate2 takes what is longer than the shortest prompt as a prefix.
"""
import json
import os
import subprocess
import sys

try:
    import ctranslate2
    import sacrebleu
    import sentencepiece
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

MAX_LENGTH = 64
SCORES_AGREE = 1e-3
NEARLY = (1 + 1e-5, 1 - 1e-5)  # changes of the repetition penalty that only ties notice
# Options of apps/translate, and what they are called there.
CASES = [
    (["--beam", "1"], {"beam_size": 1}),
    (["--beam", "4"], {"beam_size": 4}),
    (["--beam", "4", "--nbest", "4"], {"beam_size": 4, "num_hypotheses": 4}),
]
OF_TRANSLATION = [
    (["--beam", "4", "--no-repeat-ngram", "2", "--length-penalty", "0.6"], {"beam_size": 4, "no_repeat_ngram_size": 2, "length_penalty": 0.6}),
    (["--beam", "1", "--repetition-penalty", "1.3"], {"beam_size": 1, "repetition_penalty": 1.3}),
    (["--beam", "4", "--prefix", "judge.prefixes", "--repetition-penalty", "1.2", "--min-length", "24"],
     {"beam_size": 4, "target_prefix": True, "repetition_penalty": 1.2, "min_decoding_length": 24}),
]


def ours(translate, checkpoint, source, options, reference):
    """For each line its texts and their scores."""
    command = [translate, checkpoint, *options, "--max-length", str(MAX_LENGTH), "--max-length-factor", "0"]
    if "--nbest" not in options:
        command.append("--scores")
    if reference:
        command += ["--reference", reference]
    with open(source, "rb") as lines:
        run = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    result = json.loads(run.stderr.strip().splitlines()[-1].removeprefix("result "))
    printed = run.stdout.split("\n")[:-1]
    if "--nbest" not in options:
        return [[(float(score), text)] for score, text in (line.split("\t", 1) for line in printed)], result
    found = []
    for number, text, features, score in (line.split(" ||| ") for line in printed):
        found += [[]] * (int(number) + 1 - len(found))
        found[-1] = found[-1] + [(float(score), text)]
        length = float(features.removeprefix("F0= ")) / float(score)
        if abs(length - round(length)) > 1e-3 * length:
            sys.exit(f"{' '.join(command)}: {features} is no multiple of {score}")
    return found, result


def theirs(folder, sources, options):
    options = {"length_penalty": 1.0, "min_decoding_length": 0, **options}
    if os.path.exists(f"{folder}/vocabulary.json"):
        return continued(folder, sources, options)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=2)
    pieces, targets = (sentencepiece.SentencePieceProcessor(f"{folder}/{side}.spm") for side in ("source", "target"))
    if pieces.pad_id() >= 0:  # a piece of T5's and M2M-100's, which apps/translate never chooses
        options["suppress_sequences"] = [[pieces.id_to_piece(pieces.pad_id())]]
    tokens = [pieces.encode(line, out_type=str) for line in sources]
    if "target_prefix" in options:
        with open("judge.prefixes", encoding="utf-8") as lines:
            options["target_prefix"] = [targets.encode(line, out_type=str) for line in lines.read().split("\n")[:-1]]
    results = translator.translate_batch(
        tokens, max_decoding_length=MAX_LENGTH, max_input_length=0, return_scores=True, max_batch_size=64, **options)
    return [list(zip(r.scores, map(targets.decode, r.hypotheses))) for r in results]


def continued(folder, sources, options):
    options["min_length"] = options.pop("min_decoding_length")
    generator = ctranslate2.Generator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=2)
    pieces = sentencepiece.SentencePieceProcessor(f"{folder}/tokenizer.model")
    prompts = [["<s>"] + pieces.encode(line, out_type=str) for line in sources]
    results = generator.generate_batch(
        prompts, max_batch_size=1, suppress_sequences=[["<s>"]], max_length=MAX_LENGTH, sampling_topk=1, return_scores=True, include_prompt_in_result=False, **options)
    return [list(zip(r.scores, [pieces.decode(pieces_of) for pieces_of in r.sequences])) for r in results]


def texts_of(hypotheses):
    return [text for _, text in hypotheses]


def apart(mine, other):
    """The largest difference of two scores of one rank."""
    return max((abs(a - b) for (a, _), (b, _) in zip(mine, other, strict=True)), default=float("inf"))


def agree_nearby(ours_with, theirs_with, options, others):
    """The lines on which both agree when the repetition penalty is a little larger, or a little smaller."""
    at = options.index("--repetition-penalty") if "--repetition-penalty" in options else len(options)
    lines = set()
    for change in NEARLY:
        penalty = others.get("repetition_penalty", 1.0) * change
        mine, _ = ours_with([*options[:at], "--repetition-penalty", repr(penalty), *options[at + 2:]])
        other = theirs_with({**others, "repetition_penalty": penalty})
        lines |= {i for i, (a, b) in enumerate(zip(mine, other)) if texts_of(a) == texts_of(b)}
    return lines


def main():
    translate, checkpoint, folder, source, *rest = sys.argv[1:]
    reference = rest[0] if rest else None
    with open(source, encoding="utf-8") as lines:
        sources = lines.read().split("\n")[:-1]
    with open("judge.prefixes", "w", encoding="utf-8") as prefixes:
        for i, line in enumerate(sources):
            prefixes.write(" ".join(line.split(" ")[: i % 4]) + "\n")
    failures = []
    for options, others in CASES + ([] if os.path.exists(f"{folder}/vocabulary.json") else OF_TRANSLATION):
        name = " ".join(options)
        ours_with, theirs_with = (lambda o: ours(translate, checkpoint, source, o, reference)), (lambda o: theirs(folder, sources, o))
        mine, result = ours_with(options)
        other = theirs_with(others)
        pairs = list(zip(mine, other, sources))
        same = [(a, b) for a, b, _ in pairs if texts_of(a) == texts_of(b)]
        differing = [i for i, (a, b, _) in enumerate(pairs) if texts_of(a) != texts_of(b)]
        unlike = {i for i in differing if apart(mine[i], other[i]) > SCORES_AGREE}
        if unlike:
            unlike -= agree_nearby(ours_with, theirs_with, options, others)
        ties = len(differing) - len(unlike)
        worst = max((apart(a, b) for a, b in same), default=float("inf"))
        distinct = len({(round(a[0][0], 3), a[0][1]) for a in mine})
        print(f"{name}: {len(same)} of {len(mine)} lines identical ({distinct} distinct), scores within {worst:.2e}; {ties} ties")
        if len(mine) != len(sources) or len(same) + ties < 0.99 * len(sources) or len(same) < 0.9 * len(sources):
            failures.append(f"{name}: only {len(same)} of {len(sources)} lines are identical, and {ties} are ties")
            for a, b, line in (pairs[i] for i in sorted(unlike)[:3]):
                failures.append(f"  source {line!r}\n  ours   {a}\n  theirs {b}")
        if worst > SCORES_AGREE:
            failures.append(f"{name}: scores differ by {worst}")
        if distinct < 2:
            failures.append(f"{name}: all translations are equal and score alike, which shows nothing")
        if reference:
            with open(reference, encoding="utf-8") as lines:
                references = lines.read().split("\n")[:-1]
            texts = [hypotheses[0][1] for hypotheses in mine]
            for metric, value in (("bleu", sacrebleu.corpus_bleu(texts, [references]).score),
                                  ("chrf", sacrebleu.corpus_chrf(texts, [references]).score),
                                  ("ter", sacrebleu.corpus_ter(texts, [references]).score)):
                if result[metric] != value:
                    failures.append(f"{name}: {metric} {result[metric]} instead of sacreBLEU's {value}")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
