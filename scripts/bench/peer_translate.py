#!/usr/bin/env python3
"""The CTranslate2 side of scripts/bench/translate, which starts it with an exported model, a text and the number of cores.

It reads one JSON object a line, {"beam": 4, "compute_type": "int8", "workers": 2}, and answers with one: the seconds from text to text,
the translations, and sacreBLEU's BLEU. Ask it once: threads of an earlier translator still take processor time while they wait.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import ctranslate2
import sacrebleu
import sentencepiece


class Peer:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.pieces = sentencepiece.SentencePieceProcessor(str(options.model / "source.spm"))
        self.lines = options.input.read_text("utf-8").split("\n")[:-1]
        self.references = options.reference.read_text("utf-8").split("\n")[:-1]

    def translate(self, beam: int, compute_type: str, workers: int) -> dict[str, object]:
        translator = ctranslate2.Translator(str(self.options.model), device="cpu", compute_type=compute_type, inter_threads=workers,
                                            intra_threads=max(1, self.options.cores // workers))
        begin = time.perf_counter()
        tokens = [self.pieces.encode(line, out_type=str) for line in self.lines]
        results = translator.translate_batch(tokens, beam_size=beam, length_penalty=1.0, max_decoding_length=self.options.max_length,
                                             min_decoding_length=0, max_input_length=0, max_batch_size=64)
        lines = [self.pieces.decode(result.hypotheses[0]) for result in results]
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "lines": lines, "bleu": sacrebleu.corpus_bleu(lines, [self.references]).score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder written by apps/export --format ct2")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--max-length", type=int, required=True)
    peer = Peer(parser.parse_args())
    print(json.dumps({"ctranslate2": ctranslate2.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.translate(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
