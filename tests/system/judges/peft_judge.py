#!/usr/bin/env python3
"""Judges folders of adapters: peft must load them next to the model that they belong to, and give the logits of the merged model.

usage: peft_judge.py BASE ADAPTERS MERGED

BASE and MERGED are Hugging Face folders. All adapters of the folder must be loaded, they must change the logits of BASE, and merging by peft
must give the matrices of MERGED within 1e-6. Exit code 1 names what differs; 77: the judges' environment is missing.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --peer installs it")
    sys.exit(77)


def opened(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    kind = transformers.AutoModelForSeq2SeqLM if config.get("is_encoder_decoder") else transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=torch.float32).eval(), config


def main(base, adapters, merged):
    torch.manual_seed(1)
    model, config = opened(base)
    wanted, _ = opened(merged)
    ids = torch.randint(3, config["vocab_size"] - 70, (3, 9))
    inputs = {"input_ids": ids, "decoder_input_ids": ids.flip(1)} if config.get("is_encoder_decoder") else {"input_ids": ids}
    with torch.no_grad():
        before = model(**inputs).logits
        adapted = peft.PeftModel.from_pretrained(model, adapters).eval()
        logits, expected = adapted(**inputs).logits, wanted(**inputs).logits
    stored = safetensors.torch.load_file(f"{adapters}/adapter_model.safetensors")
    loaded = peft.get_peft_model_state_dict(adapted)
    if set(stored) != set(loaded) or any(not torch.equal(stored[name], loaded[name]) for name in stored):
        sys.exit(f"{adapters}: peft has loaded other tensors: {sorted(set(stored) ^ set(loaded))}")
    live = before.abs() < 1e3  # dead ids have a bias of -1e4
    change, error = ((a - b)[live].abs().max().item() for a, b in ((before, logits), (expected, logits)))
    if change < 100 * error or error > 1e-5:
        sys.exit(f"{adapters}: logits differ by {error:.3g} from the merged model's, and by {change:.3g} from those without adapters")
    matrices = adapted.merge_and_unload().state_dict()
    for name, value in wanted.state_dict().items():
        difference = (matrices[name] - value).abs().max().item()
        if difference > 1e-6 and "final_logits_bias" not in name:
            sys.exit(f"{name}: differs by {difference:.3g} from the merged model's")
    print(f"{len(stored)} tensors; logits within {error:.2g}, moved by {change:.2g}")


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    main(*sys.argv[1:])
