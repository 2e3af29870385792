#!/usr/bin/env python3
"""Judges the import of Hugging Face folders: models that transformers makes, with random weights and unusual sizes, must translate
(or continue) in Argosy as they do in transformers, and come back with the same bytes in every tensor.

usage: import_judge.py EXPORT TRANSLATE SOURCE

A model is saved by transformers, turned into a checkpoint by EXPORT, read by TRANSLATE, and exported again. The lines of SOURCE train
the tokenizers. At least 99 % of the lines are identical, and the scores of identical lines agree within 1e-4.
Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import safetensors
    import sentencepiece
    import torch
    import transformers
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

MAX_LENGTH = 16
PIECES = 303  # odd, and no multiple of 8


@dataclass
class Case:
    name: str
    kind: str
    sizes: dict = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    shard: str = "50GB"


LANGUAGE = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": PIECES,
            "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
TRANSLATION = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 100,
               "decoder_ffn_dim": 100, "vocab_size": PIECES + 1, "decoder_vocab_size": PIECES + 1, "max_position_embeddings": 256, "pad_token_id": PIECES,
               "decoder_start_token_id": PIECES, "eos_token_id": 0, "forced_eos_token_id": None, "bos_token_id": 0, "scale_embedding": True, "init_std": 0.15}
CASES = [
    Case("llama", "llama", {"rope_theta": 5e4}),
    Case("llama-tied", "llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}, dtype=torch.bfloat16),
    Case("mistral", "mistral", {"sliding_window": 7, "head_dim": 12}, shard="60KB"),
    Case("mistral-no-window", "mistral", {"sliding_window": None, "head_dim": 8}, dtype=torch.float16),
    Case("llama3", "llama", {"rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
                                                                        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}),
    Case("qwen2", "qwen2", {"rms_norm_eps": 1e-6, "tie_word_embeddings": True}),
    Case("marian", "marian", {"activation_function": "swish"}),
    Case("marian-untied", "marian", {"activation_function": "relu", "tie_word_embeddings": False, "share_encoder_decoder_embeddings": False}),
    Case("pegasus", "pegasus", {"activation_function": "gelu"}, shard="60KB"),
]


def made(case, folder, tokenizers):
    """Saves a model of transformers with random weights, and its tokenizer."""
    sizes = (TRANSLATION if case.kind in ("marian", "pegasus") else LANGUAGE) | case.sizes
    config = transformers.AutoConfig.for_model(case.kind, **sizes)
    translates = config.is_encoder_decoder
    torch.manual_seed(7)
    kind = transformers.AutoModelForSeq2SeqLM if translates else transformers.AutoModelForCausalLM
    model = kind.from_config(config)
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith(("bias", "norm.weight", "layernorm.weight")):  # which transformers leaves at 0 and 1
                tensor += 0.2 * torch.randn_like(tensor)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias[0, PIECES] = -1e4
            model.get_input_embeddings().weight[PIECES] = 0
            model.get_decoder().embed_tokens.weight[PIECES] = 0
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    if translates:
        shutil.copy(tokenizers["marian"], f"{folder}/source.spm")
        shutil.copy(tokenizers["marian"], f"{folder}/target.spm")
        shutil.copy(tokenizers["marian"], f"{folder}/tokenizer.model")
    else:
        shutil.copy(tokenizers["llama"], f"{folder}/tokenizer.model")
    return kind.from_pretrained(folder, dtype=torch.float32).eval(), translates


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def theirs(model, pieces, line, translates):
    ids = pieces.encode(line)
    ids = ids + [0] if translates else [1] + ids
    never = [] if translates else [1]  # apps/translate never chooses the start
    with torch.no_grad():
        made_ids = model.generate(torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=MAX_LENGTH, max_length=None, suppress_tokens=never or None,
                                  return_dict_in_generate=True, output_scores=True, pad_token_id=PIECES if translates else 2, use_cache=True)
    steps = model.compute_transition_scores(made_ids.sequences, made_ids.scores, normalize_logits=True)[0]
    out = made_ids.sequences[0][1:] if translates else made_ids.sequences[0][len(ids):]
    return float(steps.mean()), pieces.decode([i for i in out.tolist() if i < PIECES])


def check_tensors(case, before, after):
    def tensors(folder):
        found = {}
        for name in sorted(os.listdir(folder)):
            if name.endswith(".safetensors"):
                with safetensors.safe_open(f"{folder}/{name}", framework="pt") as file:
                    found |= {key: file.get_tensor(key) for key in file.keys()}
        return found

    old, new = tensors(before), tensors(after)
    positions = {name for name in new if name.endswith("embed_positions.weight")}  # which transformers computes and does not save
    if set(old) - positions != set(new) - positions:
        sys.exit(f"{case.name}: tensors {sorted(set(old) ^ set(new))} are on one side alone")
    for name, tensor in old.items():
        if name in new and (tensor.dtype != new[name].dtype or not torch.equal(tensor.view(torch.uint8), new[name].view(torch.uint8))):
            sys.exit(f"{case.name}: {name} came back with other bytes")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    export, translate, source = sys.argv[1:]
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]
    tokenizers = {}
    for layout, ids in {"llama": {"unk_id": 0, "bos_id": 1, "eos_id": 2}, "marian": {"eos_id": 0, "unk_id": 1, "bos_id": -1}}.items():
        sentencepiece.SentencePieceTrainer.train(input=source, model_prefix=layout, vocab_size=PIECES, pad_id=-1, minloglevel=2, hard_vocab_limit=True, **ids)
        tokenizers[layout] = f"{layout}.model"
    for case in CASES:
        folder, checkpoint, again = (f"import.{case.name}{end}" for end in ("", ".ckpt", ".again"))
        model, translates = made(case, folder, tokenizers)
        run(export, "--from", f"hf:{folder}", "--format", "argosy", "--out", checkpoint)
        pieces = sentencepiece.SentencePieceProcessor(tokenizers["marian" if translates else "llama"])
        said = run(translate, checkpoint, "--beam", "1", "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--scores", "--input", source)
        ours = [(float(score), text) for score, text in (line.split("\t", 1) for line in said.split("\n")[:-1])]
        same, worst = 0, 0.0
        for line, (score, text) in zip(lines, ours, strict=True):
            their_score, their_text = theirs(model, pieces, line, translates)
            if text.strip() == their_text.strip():
                same += 1
                worst = max(worst, abs(score - their_score))
        print(f"{case.name}: {same} of {len(lines)} lines identical, scores within {worst:.1e}")
        if same < 0.99 * len(lines) or worst > 1e-4:
            sys.exit(1)
        types = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
        run(export, checkpoint, "--format", "hf", "--quantization", types[case.dtype], "--out", again)
        check_tensors(case, folder, again)


if __name__ == "__main__":
    main()
