#!/usr/bin/env python3
"""Holds our files of adapters to Hugging Face's PEFT, on a small random GPT-2:

  ./bazelw build //strategies/lora:main //tools/language_model:export //tools/generate
  python3 tools/language_model/check_peft.py

1. Adapters that `lora` has trained, queries and values alone or whole layers, load by PeftModel.from_pretrained and give
   the validation loss of the run, beside the weights and merged into them.
2. Adapters that PEFT has saved, with either scale, let generate write the greedy text that PEFT writes, merged or not.

Needs the Python packages torch, transformers, safetensors and peft; says so and ends with exit code 2 where one is
missing. No part of CI.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import check_gpt2

check_gpt2.PACKAGES += ("peft",)


def train(binaries, folder, name, weights, tokens, layers, options):
    """A run of a few steps; returns its directory and validation loss."""
    config = os.path.join(folder, "workload.toml")
    with open(config, "w") as file:
        file.write(f"""name = "check_peft"
[train]
steps = 5
[batch]
size = 4
[model]
kind = "transformer"
layers = 3
heads = 4
width = 48
init = "{weights}"
[data]
kind = "tokens"
path = "{tokens}"
context = {check_gpt2.CONTEXT}
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.02
[lora]
layers = {json.dumps(layers)}
rank = 3
alpha = 5
{options}
[validation]
batch_size = 2
[run]
threads = 1
""")
    out = os.path.join(folder, name)
    subprocess.run([os.path.join(binaries, "strategies/lora/main"), "--config", config, "--out", out],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "summary.json")) as file:
        return out, json.load(file)["validation_loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", help="where Bazel has put the programs")
    binaries = parser.parse_args().bin
    missing = check_gpt2.missing_packages()
    if missing:
        print(f"nothing is checked: Python lacks {', '.join(missing)}", file=sys.stderr)
        return 2
    import peft
    import torch
    import transformers

    failures = []

    def check(what, passed):
        print(f"{'ok  ' if passed else 'FAIL'} {what}")
        if not passed:
            failures.append(what)

    with tempfile.TemporaryDirectory() as folder:
        original = os.path.join(folder, "original")
        check_gpt2.make_model(transformers, torch, original)
        weights = os.path.join(original, "model.safetensors")
        tokens = os.path.join(folder, "tokens.bin")
        validation = check_gpt2.write_tokens(torch, tokens)

        def base():
            return transformers.GPT2LMHeadModel.from_pretrained(original).eval()

        before = check_gpt2.validation_loss(torch, base(), validation)
        for name, layers, options in (
                ("q_and_v", ["*.qkv.q", "*.qkv.v"], ""),
                ("all", ["blocks.*"], "rank_stabilised = true"),
                ("mixed", ["blocks.0.attention.qkv.v", "blocks.1.attention.qkv.q", "blocks.1.attention.qkv.k",
                           "blocks.2"], "dropout = 0.1")):
            run, loss = train(binaries, folder, name, weights, tokens, layers, options)
            adapters = os.path.join(folder, f"{name}_adapters")
            subprocess.run([os.path.join(binaries, "tools/language_model/export"), f"--run={run}",
                            f"--output={adapters}", "--adapters_only"], check=True, stdout=subprocess.DEVNULL)
            model = peft.PeftModel.from_pretrained(base(), adapters).eval()
            theirs = check_gpt2.validation_loss(torch, model, validation)
            check(f"{name}: validation loss {loss:.9g}, PEFT {theirs:.9g}, the base {before:.9g}",
                  math.isclose(loss, theirs, rel_tol=2e-6) and not math.isclose(loss, before, rel_tol=1e-3))
            merged = check_gpt2.validation_loss(torch, model.merge_and_unload(), validation)
            check(f"{name}: merged by PEFT {merged:.9g}", math.isclose(loss, merged, rel_tol=2e-6))

        check_gpt2.write_bytes_vocabulary(folder)
        prompt = b"GPT"
        for stabilised in (False, True):
            config = peft.LoraConfig(
                task_type="CAUSAL_LM", r=4, lora_alpha=6, use_rslora=stabilised, fan_in_fan_out=True,
                target_modules=["c_attn", "c_fc", "mlp.c_proj"], init_lora_weights=False)
            torch.manual_seed(3)
            model = peft.get_peft_model(base(), config).eval()
            adapters = os.path.join(folder, f"peft_{stabilised}")
            model.save_pretrained(adapters)
            expected = check_gpt2.greedy_bytes(torch, model, prompt, 60) + b"\n"
            for merge in ([], ["--merge"]):
                text = subprocess.run(
                    [os.path.join(binaries, "tools/generate/generate"), f"--weights={weights}",
                     f"--adapter={adapters}", f"--bpe={folder}", f"--prompt={prompt.decode()}", "--tokens=60",
                     "--top_k=1"] + merge, check=True, stdout=subprocess.PIPE).stdout
                check(f"use_rslora {stabilised}: greedy text is that of PEFT {' '.join(merge)}", text == expected)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
