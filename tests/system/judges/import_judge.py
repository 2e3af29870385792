#!/usr/bin/env python3
"""Judges the import of Hugging Face folders: models that transformers makes, with random weights and unusual sizes, must translate
(or continue) in Argosy as they do in transformers, give targets the same probabilities, and come back with the same bytes in every tensor.
CTranslate2 must do the same with a folder that Argosy makes of theirs. A tokenizer.json must come back as it was.

usage: import_judge.py EXPORT TRANSLATE SOURCE

A model is saved by transformers, turned into a checkpoint by EXPORT, read by TRANSLATE, and exported again. The lines of SOURCE train
the tokenizers, and the first 20 are translated. At least 99 % of the lines are identical, and the scores of identical lines agree within 1e-4 (CTranslate2: 1e-3), as does
the logarithm of the probability of every piece of a target. Then folders are read in which one thing has been changed that importers and exporters
get wrong (MISTAKES): each must change the probabilities, or the judge would not notice the mistake.
Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import ctranslate2
    import safetensors
    import safetensors.torch
    import sentencepiece
    import tokenizers
    import torch
    import transformers
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

MAX_LENGTH = 16
BOUND = 1e-4  # of logarithms of probabilities, in fp32
PIECES = 303  # odd, and no multiple of 8


@dataclass
class Case:
    name: str
    kind: str
    sizes: dict = field(default_factory=dict)
    learned: bool = False  # its folder has tables of positions that are no sinusoids
    dtype: torch.dtype = torch.float32
    shard: str = "50GB"
    marks: tuple = ()  # of a tokenizer.json: what begins a text (or None), what ends it


LANGUAGE = {"hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": PIECES,
            "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.3}
TRANSLATION = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 100,
               "decoder_ffn_dim": 100, "vocab_size": PIECES + 1, "decoder_vocab_size": PIECES + 1, "max_position_embeddings": 256, "pad_token_id": PIECES,
               "decoder_start_token_id": PIECES, "eos_token_id": 0, "forced_eos_token_id": None, "bos_token_id": 0, "scale_embedding": True, "init_std": 0.15}
T5 = {"d_model": 48, "d_kv": 12, "d_ff": 100, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 6, "vocab_size": PIECES, "feed_forward_proj": "gated-gelu",
      "initializer_factor": 1.0, "decoder_start_token_id": 0}
M2M = {key: value for key, value in TRANSLATION.items() if "token_id" not in key and "vocab_size" not in key} | {"vocab_size": PIECES + 5, "encoder_layerdrop": 0.0,
                                                                                                                  "decoder_layerdrop": 0.0}
SIZES = {"marian": TRANSLATION, "pegasus": TRANSLATION, "t5": T5, "m2m_100": M2M}
# Of SentencePiece. The usual ids of a family, and any others, which the configuration must then name.
IDS = {"llama": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}, "marian": {"eos_id": 0, "unk_id": 1, "bos_id": -1, "pad_id": -1},
       "t5": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, "m2m_100": {"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3},
       "own": {"eos_id": 0, "bos_id": 3, "pad_id": 1, "unk_id": 2}}
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
    Case("marian-learned", "marian", {"activation_function": "relu"}, learned=True),
    Case("t5", "t5"),
    Case("t5-untied", "t5", {"tie_word_embeddings": False}, dtype=torch.bfloat16),
    Case("m2m-100", "m2m_100"),
    Case("llama3-json", "llama", {"vocab_size": PIECES + 17, "bos_token_id": PIECES - 3, "eos_token_id": PIECES - 2}, marks=("<|begin_of_text|>", "<|end_of_text|>")),
    Case("qwen2-json", "qwen2", {"vocab_size": PIECES + 37, "bos_token_id": PIECES - 3, "eos_token_id": PIECES - 3}, marks=(None, "<|endoftext|>")),
    Case("llama-own-ids", "llama", {"vocab_size": PIECES + 13, "eos_token_id": 0, "bos_token_id": 3, "pad_token_id": 1}),
]


def layout_of(case):
    return "own" if "own" in case.name else {"pegasus": "marian", "mistral": "llama", "qwen2": "llama"}.get(case.kind, case.kind)


class JsonPieces:
    """The tokenizer.json of a folder, by transformers, with the functions of a SentencePieceProcessor. -1: no such id."""

    def __init__(self, folder, marks):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.ids = self.tokenizer.get_vocab()
        self.marks = marks

    def encode(self, line, out_type=int):
        ids = self.tokenizer.encode(line, add_special_tokens=False)
        return ids if out_type is int else self.tokenizer.convert_ids_to_tokens(ids)

    def decode(self, pieces):
        ids = [self.ids.get(piece, -1) if isinstance(piece, str) else piece for piece in pieces]
        return self.tokenizer.decode(ids, skip_special_tokens=True).replace("\n", " ")

    def piece_to_id(self, piece):
        return self.ids.get(piece, -1)

    def id_to_piece(self, i):
        return self.tokenizer.convert_ids_to_tokens(i) if i >= 0 else ""

    def bos_id(self):
        return self.piece_to_id(self.marks[0])

    def eos_id(self):
        return self.piece_to_id(self.marks[1])

    def unk_id(self):
        return -1


def save_byte_level(marks, folder, source):
    """Saves a tokenizer.json like Llama 3's or, without a mark for beginnings, Qwen2's. It has PIECES pieces."""
    begin, end = marks
    digits = "{1,3}" if begin else ""
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    before = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=bool(begin)))
    tokenizer.pre_tokenizer = before.Sequence([before.Split(tokenizers.Regex(words), "isolated"), before.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train([source], tokenizers.trainers.BpeTrainer(vocab_size=PIECES - 3, show_progress=False, initial_alphabet=before.ByteLevel.alphabet()))
    if begin:
        tokenizer.add_special_tokens([begin, end, "<|eot_id|>"])
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[(begin, PIECES - 3)])
    else:
        tokenizer.normalizer = tokenizers.normalizers.NFC()
        tokenizer.add_special_tokens([end, "<|im_start|>", "<|im_end|>"])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin, eos_token=end).save_pretrained(folder)


def made(case, folder, source):
    """Saves a model of transformers with random weights, and its tokenizer."""
    config = transformers.AutoConfig.for_model(case.kind, **(SIZES.get(case.kind, LANGUAGE) | case.sizes))
    torch.manual_seed(7)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_config(config)
    untied_t5 = case.kind == "t5" and case.sizes.get("tie_word_embeddings") is False
    if untied_t5:
        model.lm_head.weight = torch.nn.Parameter(0.2 * torch.randn_like(model.lm_head.weight))
    with torch.no_grad():
        for name, tensor in list(model.named_parameters()) + list(model.named_buffers()):
            if name.endswith(("bias", "norm.weight", "layernorm.weight")):  # which transformers leaves at 0 and 1
                tensor += 0.2 * torch.randn_like(tensor)
            if "relative_attention_bias" in name:
                tensor += torch.randn_like(tensor)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias[0, PIECES] = -1e4
            model.get_input_embeddings().weight[PIECES] = 0
            model.get_decoder().embed_tokens.weight[PIECES] = 0
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard)
    if untied_t5:  # as in the folders of T5 v1.1
        change(f"{folder}/config.json", {"tie_word_embeddings": False, "scale_decoder_outputs": None})
    if case.learned:  # which transformers reads and does not save
        weights = safetensors.torch.load_file(f"{folder}/model.safetensors")
        for side in ("encoder", "decoder"):
            weights[f"model.{side}.embed_positions.weight"] = torch.randn(config.max_position_embeddings, config.d_model)
        safetensors.torch.save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    if case.marks:
        save_byte_level(case.marks, folder, source)
        return kind.from_pretrained(folder, dtype=torch.float32).eval(), JsonPieces(folder, case.marks)
    tokenizer = f"{layout_of(case)}.model"
    for name in ("source.spm", "target.spm") if case.kind == "marian" else ("tokenizer.model",):
        shutil.copy(tokenizer, f"{folder}/{name}")
    return kind.from_pretrained(folder, dtype=torch.float32).eval(), sentencepiece.SentencePieceProcessor(tokenizer)


def change(path, values):
    """Sets keys of a JSON file; None: removes them."""
    with open(path, encoding="utf-8") as file:
        keys = json.load(file) | values
    with open(path, "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in keys.items() if value is not None}, file)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def never(model, pieces):
    """Pieces that apps/translate never chooses: the start and pad."""
    config = model.config
    start = config.decoder_start_token_id if config.is_encoder_decoder else pieces.bos_id()
    return [i for i in {start, config.pad_token_id} if i is not None and i != pieces.eos_id() and 0 <= i < config.vocab_size]


def read_by(model, pieces, line):
    ids = pieces.encode(line)
    if model.config.is_encoder_decoder:
        return ids + [pieces.eos_id()]
    return ([pieces.bos_id()] if pieces.bos_id() >= 0 else []) + ids


def theirs(model, pieces, line):
    ids, translates = read_by(model, pieces, line), model.config.is_encoder_decoder
    with torch.no_grad():
        made_ids = model.generate(torch.tensor([ids]), num_beams=1, do_sample=False, max_new_tokens=MAX_LENGTH, max_length=None, suppress_tokens=never(model, pieces) or None,
                                  return_dict_in_generate=True, output_scores=True, pad_token_id=model.config.pad_token_id or pieces.eos_id(), use_cache=True)
    steps = model.compute_transition_scores(made_ids.sequences, made_ids.scores, normalize_logits=True)[0]
    out = made_ids.sequences[0][1:] if translates else made_ids.sequences[0][len(ids):]
    return float(steps.mean()), pieces.decode([i for i in out.tolist() if i < PIECES])


def of_ctranslate2(folder, model, pieces, lines):
    options = {"max_batch_size": 64, "beam_size": 1, "return_scores": True, "suppress_sequences": [[pieces.id_to_piece(i)] for i in never(model, pieces) if i < PIECES] or None}
    if model.config.is_encoder_decoder:
        translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=2)
        results = translator.translate_batch([pieces.encode(line, out_type=str) for line in lines], max_decoding_length=MAX_LENGTH, min_decoding_length=0, max_input_length=0, **options)
        return [(r.scores[0], r.hypotheses[0]) for r in results]
    generator = ctranslate2.Generator(folder, compute_type="float32", intra_threads=2)
    begin = [pieces.id_to_piece(pieces.bos_id())] if pieces.bos_id() >= 0 else []
    prompts = [begin + pieces.encode(line, out_type=str) for line in lines]
    results = generator.generate_batch(prompts, max_length=MAX_LENGTH, min_length=0, include_prompt_in_result=False, **options)
    return [(r.scores[0], r.sequences[0]) for r in results]


def worst_of_targets(model, pieces, lines, command):
    """By how much the probabilities of given targets differ, piece by piece. A language model continues half a line."""
    translates = model.config.is_encoder_decoder
    halves = [line.rfind(" ", 0, 1 + len(line) // 2) for line in lines]
    pairs = list(zip(lines, lines[1:] + lines[:1])) if translates else [(line[:at], line[at:]) for line, at in zip(lines, halves) if at > 0]
    with open("import.pairs", "w", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)
    worst = 0.0
    for (source, target), printed in zip(pairs, run(*command, "--score", "--token-scores", "--input", "import.pairs").split("\n")):
        given = read_by(model, pieces, source)
        with torch.no_grad():
            if translates:
                labels = getattr(pieces, "target", pieces).encode(target) + [pieces.eos_id()]
                logits = model(input_ids=torch.tensor([given]), decoder_input_ids=torch.tensor([[model.config.decoder_start_token_id] + labels[:-1]])).logits[0]
            else:
                whole = read_by(model, pieces, source + target)
                labels = whole[len(given):]
                logits = model(input_ids=torch.tensor([whole])).logits[0][len(given) - 1:-1]
        log_p = torch.log_softmax(logits, -1)[range(len(labels)), labels].tolist()
        got = [float(number) for number in printed.split("\t")[-1].split(" ")]
        worst = max(worst, *(abs(a - b) for a, b in zip(log_p, got, strict=True)))
    return worst


@dataclass
class Mistake:
    name: str
    case: str  # whose folder is changed
    weights: object = None  # changes the tensors by name
    config: dict = field(default_factory=dict)


def interleave(weights):
    """Rotary halves side by side, as in the files of Meta's Llama."""
    for name, tensor in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            head = LANGUAGE["hidden_size"] // LANGUAGE["num_attention_heads"]
            weights[name] = tensor.view(-1, 2, head // 2, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape).contiguous()


def without(end):
    def change_weights(weights):
        for name, tensor in weights.items():
            if name.endswith(end):
                weights[name] = torch.zeros_like(tensor)

    return change_weights


def shift_positions(weights):
    for side in ("encoder", "decoder"):
        name = f"model.{side}.embed_positions.weight"
        weights[name] = weights[name].roll(-1, 0)


def pad_vocabulary(weights):
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.cat([weights[name], torch.zeros(17, weights[name].shape[1])])


def tie(weights):
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()


MISTAKES = [
    Mistake("the vocabulary keeps its padding", "llama", pad_vocabulary, {"vocab_size": PIECES + 17}),
    Mistake("the output is tied", "llama", tie, {"tie_word_embeddings": True}),
    Mistake("rotary halves are interleaved", "llama", interleave),
    Mistake("positions begin at 1", "marian-learned", shift_positions),
    Mistake("final_logits_bias is left out", "pegasus", without("final_logits_bias")),
    Mistake("the output of T5 is not scaled", "t5", lambda weights: weights.update({"lm_head.weight": weights["shared.weight"].clone()}), {"tie_word_embeddings": False, "scale_decoder_outputs": None}),
    Mistake("biases of queries are left out", "qwen2", without("q_proj.bias")),
]


def check_mistake(mistake, folder, model, pieces, lines, translate):
    wrong = f"{folder}.wrong"
    shutil.rmtree(wrong, ignore_errors=True)
    shutil.copytree(folder, wrong)
    weights = {}
    for name in sorted(os.listdir(wrong)):
        if name.endswith(".safetensors"):
            weights |= safetensors.torch.load_file(f"{wrong}/{name}")
            os.remove(f"{wrong}/{name}")
        elif name.endswith(".index.json"):
            os.remove(f"{wrong}/{name}")
    mistake.weights(weights)
    safetensors.torch.save_file(weights, f"{wrong}/model.safetensors", metadata={"format": "pt"})
    change(f"{wrong}/config.json", mistake.config)
    worst = worst_of_targets(model, pieces, lines, (translate, wrong))
    print(f"{mistake.name}: {worst:.1e}")
    if worst <= 10 * BOUND:
        sys.exit(f"{mistake.name}: not noticed")


def check_lines(what, lines, ours, theirs_of_lines, bound):
    same, worst = 0, 0.0
    for (score, text), (their_score, their_text) in zip(ours, theirs_of_lines, strict=True):
        if text.strip() == their_text.strip():
            same += 1
            worst = max(worst, abs(score - their_score))
    print(f"{what}: {same} of {len(lines)} lines identical, scores within {worst:.1e}")
    if same < 0.99 * len(lines) or worst > bound:
        sys.exit(1)


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


def check_tokenizer(case, before, after, lines):
    with open(f"{before}/tokenizer.json", "rb") as old, open(f"{after}/tokenizer.json", "rb") as new:
        if old.read() != new.read():
            sys.exit(f"{case.name}: tokenizer.json came back with other bytes")
    old, new = JsonPieces(before, case.marks), JsonPieces(after, case.marks)
    wrong = [line for line in lines if old.tokenizer.encode(line) != new.tokenizer.encode(line)]
    if wrong or old.tokenizer.eos_token != new.tokenizer.eos_token:
        sys.exit(f"{case.name}: transformers reads the tokenizer that comes back otherwise, e.g. {wrong[:1]}")


def judge_nllb(export, translate, source, lines):
    """NLLB's kind of folder: an M2M-100 with a tokenizer.json, in which languages are added tokens."""
    folder, checkpoint, again = "import.nllb", "import.nllb.ckpt", "import.nllb.again"
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = tokenizers.normalizers.NFKC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.train([source], tokenizers.trainers.BpeTrainer(vocab_size=PIECES, show_progress=False, special_tokens=["<s>", "<pad>", "</s>", "<unk>"]))
    tokenizer.add_special_tokens(["eng_Latn", "spa_Latn", "<mask>"])
    source_id, target_id = (tokenizer.token_to_id(language) for language in ("eng_Latn", "spa_Latn"))
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="eng_Latn $A </s>", special_tokens=[("eng_Latn", source_id), ("</s>", 2)])
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>").save_pretrained(folder)
    torch.manual_seed(7)
    model = transformers.AutoModelForSeq2SeqLM.from_config(transformers.AutoConfig.for_model("m2m_100", **(M2M | {"vocab_size": tokenizer.get_vocab_size() + 5}))).eval()
    model.save_pretrained(folder)
    run(export, "--from", f"hf:{folder}", "--format", "argosy", "--out", checkpoint)
    said = run(translate, checkpoint, "--beam", "1", "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--source-prefix", "eng_Latn", "--target-prefix",
               "spa_Latn", "--omit-prefix", "--input", "import.lines")
    for line, text in zip(lines, said.split("\n")[:-1], strict=True):
        with torch.no_grad():
            ids = model.generate(torch.tensor([tokenizer.encode(line).ids]), num_beams=1, do_sample=False, max_new_tokens=MAX_LENGTH, max_length=None,
                                 forced_bos_token_id=target_id, suppress_tokens=[1])[0].tolist()
        wanted = tokenizer.decode([i for i in ids if i < tokenizer.get_vocab_size()]).replace("\n", " ").strip()  # a translation is one line
        if wanted != text.strip():
            sys.exit(f"nllb, {line!r}: {text!r}, transformers' is {wanted!r}")
    run(export, checkpoint, "--format", "hf", "--out", again)
    check_tensors(Case("nllb", "m2m_100"), folder, again)
    transformers.AutoTokenizer.from_pretrained(again)
    print(f"nllb: {len(lines)} lines identical")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    export, translate, source = sys.argv[1:]
    torch.set_num_threads(2)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with open(source, encoding="utf-8") as file:
        lines = file.read().split("\n")[:20]
    with open("import.lines", "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    for layout, ids in IDS.items():
        sentencepiece.SentencePieceTrainer.train(input=source, model_prefix=layout, vocab_size=PIECES, minloglevel=2, hard_vocab_limit=True, **ids)
    for case in CASES:
        folder, checkpoint, again, ct2 = (f"import.{case.name}{end}" for end in ("", ".ckpt", ".again", ".ct2"))
        model, pieces = made(case, folder, source)
        run(export, "--from", f"hf:{folder}", "--format", "argosy", "--out", checkpoint)
        command = (translate, checkpoint)
        said = run(*command, "--beam", "1", "--max-length", str(MAX_LENGTH), "--max-length-factor", "0", "--scores", "--input", "import.lines")
        ours = [(float(score), text) for score, text in (line.split("\t", 1) for line in said.split("\n")[:-1])]
        check_lines(case.name, lines, ours, [theirs(model, pieces, line) for line in lines], BOUND)
        worst = worst_of_targets(model, pieces, lines, command)
        print(f"{case.name}: pieces of targets within {worst:.1e}")
        if worst > BOUND:
            sys.exit(1)
        for mistake in MISTAKES:
            if mistake.case == case.name:
                check_mistake(mistake, folder, model, pieces, lines, translate)
        run(export, "--from", f"hf:{folder}", "--format", "ct2", "--out", ct2)
        decoded = [(score, pieces.decode([piece for piece in hypothesis if pieces.piece_to_id(piece) != pieces.unk_id() or piece == pieces.id_to_piece(pieces.unk_id())]))
                   for score, hypothesis in of_ctranslate2(ct2, model, pieces, lines)]
        if not case.sizes.get("sliding_window"):  # whose prompts exceed the window (FORMAT.md)
            check_lines(f"{case.name}, CTranslate2", lines, ours, decoded, 1e-3)
        types = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
        run(export, checkpoint, "--format", "hf", "--quantization", types[case.dtype], "--out", again)
        check_tensors(case, folder, again)
        if case.marks:
            check_tokenizer(case, folder, again, lines)
    judge_nllb(export, translate, source, lines)


if __name__ == "__main__":
    main()
