#!/usr/bin/env python3
"""Judges an export: CTranslate2 must translate (or continue, for a language model) as apps/translate does, greedy and with
beam 4, in fp32.

usage: ctranslate2_judge.py TRANSLATE CHECKPOINT CT2_FOLDER SOURCE [REFERENCE]

At least 99 % of the lines are identical, and the scores of identical lines agree within 1e-3. With a reference, BLEU, chrF and TER
of the result line must equal sacreBLEU's. Exit code 1 names what differs; 77: the judges' environment is missing.
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


def ours(translate, checkpoint, source, beam, reference):
    command = [translate, checkpoint, "--beam", str(beam), "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--scores"]
    if reference:
        command += ["--reference", reference]
    with open(source, "rb") as lines:
        run = subprocess.run(command, stdin=lines, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    result = json.loads(run.stderr.strip().splitlines()[-1].removeprefix("result "))
    pairs = [line.split("\t", 1) for line in run.stdout.split("\n")[:-1]]
    return [(float(score), text) for score, text in pairs], result


def theirs(folder, sources, beam):
    if os.path.exists(f"{folder}/vocabulary.json"):
        return continued(folder, sources, beam)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=2)
    pieces = sentencepiece.SentencePieceProcessor(f"{folder}/source.spm")
    tokens = [pieces.encode(line, out_type=str) for line in sources]
    results = translator.translate_batch(
        tokens, beam_size=beam, length_penalty=1.0, max_decoding_length=MAX_LENGTH, min_decoding_length=0,
        max_input_length=0, return_scores=True, max_batch_size=64)
    return [(r.scores[0], pieces.decode(r.hypotheses[0])) for r in results]


def continued(folder, sources, beam):
    generator = ctranslate2.Generator(folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=2)
    pieces = sentencepiece.SentencePieceProcessor(f"{folder}/tokenizer.model")
    prompts = [["<s>"] + pieces.encode(line, out_type=str) for line in sources]
    results = generator.generate_batch(
        prompts, beam_size=beam, length_penalty=1.0, max_length=MAX_LENGTH, min_length=0, sampling_topk=1,
        return_scores=True, include_prompt_in_result=False)
    return [(r.scores[0], pieces.decode(r.sequences[0])) for r in results]


def main():
    translate, checkpoint, folder, source, *rest = sys.argv[1:]
    reference = rest[0] if rest else None
    with open(source, encoding="utf-8") as lines:
        sources = lines.read().split("\n")[:-1]
    failures = []
    for beam in (1, 4):
        mine, result = ours(translate, checkpoint, source, beam, reference)
        other = theirs(folder, sources, beam)
        same = [(a, b) for a, b in zip(mine, other) if a[1] == b[1]]
        worst = max((abs(a[0] - b[0]) for a, b in same), default=float("inf"))
        distinct = len({text for _, text in mine})
        print(f"beam {beam}: {len(same)} of {len(mine)} lines identical ({distinct} distinct), scores within {worst:.2e}")
        if len(mine) != len(sources) or len(same) < 0.99 * len(sources):
            failures.append(f"beam {beam}: only {len(same)} of {len(sources)} lines are identical")
            for a, b, line in [(a, b, s) for a, b, s in zip(mine, other, sources) if a[1] != b[1]][:3]:
                failures.append(f"  source {line!r}\n  ours   {a}\n  theirs {b}")
        if worst > 1e-3:
            failures.append(f"beam {beam}: scores differ by {worst}")
        if distinct < 2:
            failures.append(f"beam {beam}: all translations are equal, which shows nothing")
        if reference:
            with open(reference, encoding="utf-8") as lines:
                references = lines.read().split("\n")[:-1]
            texts = [text for _, text in mine]
            for name, value in (("bleu", sacrebleu.corpus_bleu(texts, [references]).score),
                                ("chrf", sacrebleu.corpus_chrf(texts, [references]).score),
                                ("ter", sacrebleu.corpus_ter(texts, [references]).score)):
                if result[name] != value:
                    failures.append(f"beam {beam}: {name} {result[name]} instead of sacreBLEU's {value}")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
