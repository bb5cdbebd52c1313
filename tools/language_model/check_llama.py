#!/usr/bin/env python3
"""Holds our Llama and Mixtral to Hugging Face's transformers, on small random models:

  ./bazelw build //strategies/... //tools/language_model:export //tools/generate
  python3 tools/language_model/check_llama.py

1. Weights that transformers have saved, in one file and in several, load by model.init under several strategies, and give
   the validation loss that transformers' model computes on the same windows.
2. A step of plain SGD with a learning rate of 1 moves each weight by its gradient: that of transformers' model on the batch.
3. What export writes has the very bits of what was loaded, by the safetensors package, and from_pretrained makes a model of
   it with the same logits.
4. generate's greedy text is that of transformers' model.

Models have grouped heads; their heads are tied or not, their rotary positions plain or scaled as Llama 3's. One is a Mixtral of
five experts.

Needs the Python packages torch, transformers and safetensors; says so and ends with exit code 2 where one is missing. No
part of CI.
"""
import argparse
import math
import os
import struct
import subprocess
import sys
import tempfile

import check_gpt2

VOCABULARY, CONTEXT = 257, 24
SCALING = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 32}


def make_model(transformers, torch, folder, tied, scaled, experts, file_size):
    """A model far from its start, so that mistakes show, saved in `folder`."""
    sizes = dict(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_theta=500.0, rope_scaling=dict(SCALING) if scaled else None, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(1)
    if experts:
        config = transformers.MixtralConfig(num_local_experts=experts, num_experts_per_tok=2, **sizes)
        model = transformers.MixtralForCausalLM(config).eval()
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size=file_size)
    return model


def write_tokens(torch, path):
    """A file as core/data/token_file.h describes it, whose training split is one window; returns both splits."""
    tokens = torch.randint(0, VOCABULARY, (1000,), generator=torch.Generator().manual_seed(2)).tolist()
    train = CONTEXT + 1
    with open(path, "wb") as file:
        file.write(b"lstokens" + struct.pack("<IIQQQ", 1, 2, VOCABULARY, len(tokens), train) + bytes(24))
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))
    return tokens[:train], tokens[train:]


def run(binaries, strategy, ranks, folder, weights, tokens, tied, scaled, experts, learning_rate):
    """A run of one step of SGD; returns its directory and its validation loss."""
    config = os.path.join(folder, "workload.toml")
    scaling = ("rope_scaling = {factor = 4.0, low_freq_factor = 1.0, high_freq_factor = 4.0, original_context = 32}"
               if scaled else "")
    mixture = f"experts = {{count = {experts}, top_k = 2}}" if experts else ""
    with open(config, "w") as file:
        file.write(f"""name = "check_llama"
[train]
steps = 1
clip_norm = 0
[batch]
size = 4
[model]
kind = "llama"
layers = 3
heads = 6
key_heads = 2
width = 48
mlp_width = 80
rope_theta = 500.0
head = "{'tied' if tied else 'own'}"
{scaling}
{mixture}
[data]
kind = "tokens"
path = "{tokens}"
context = {CONTEXT}
[optimizer]
kind = "sgd"
momentum = 0.0
[schedule]
learning_rate = {learning_rate}
[validation]
batch_size = 2
[run]
threads = 1
""")
    out = os.path.join(folder, f"{strategy}_{learning_rate}")
    command = [os.path.join(binaries, "strategies", strategy, "main"), "--config", config, "--out", out,
               "--set", f"model.init={weights}"]
    for assignment in ranks:
        command += ["--set", assignment]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "summary.json")) as file:
        return out, check_gpt2.json.load(file)["validation_loss"]


def export(binaries, out, folder):
    subprocess.run([os.path.join(binaries, "tools/language_model/export"), f"--run={out}", f"--output={folder}",
                    "--file_bytes=100000"], check=True, stdout=subprocess.DEVNULL)


def load_tensors(safetensors, folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors |= safetensors.torch.load_file(os.path.join(folder, name))
    return tensors


def gradients_of(torch, safetensors, model, window, folder):
    """The gradients of the mean loss of one window, by the tensors of files: saved in `folder` as if they were weights, which a
    model may hold under other names. The model's weights are lost."""
    model.zero_grad()
    ids = torch.tensor(window)
    logits = model(ids[None, :-1]).logits[0]
    torch.nn.functional.cross_entropy(logits, ids[1:]).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    model.save_pretrained(folder)
    return load_tensors(safetensors, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", help="where Bazel has put the programs")
    binaries = parser.parse_args().bin
    missing = check_gpt2.missing_packages()
    if missing:
        print(f"nothing is checked: Python lacks {', '.join(missing)}", file=sys.stderr)
        return 2
    import safetensors.torch
    import torch
    import transformers

    failures = []

    def check(what, passed):
        print(f"{'ok  ' if passed else 'FAIL'} {what}")
        if not passed:
            failures.append(what)

    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    check_gpt2.VOCABULARY, check_gpt2.CONTEXT = VOCABULARY, CONTEXT
    for tied, scaled, experts, file_size in ((False, True, 0, "100KB"), (True, False, 0, "5GB"), (False, False, 5, "100KB")):
        kind = f"{'tied' if tied else 'own'} head, {'scaled' if scaled else 'plain'} positions"
        kind += f", {experts} experts" if experts else ""
        with tempfile.TemporaryDirectory() as folder:
            original = os.path.join(folder, "original")
            model = make_model(transformers, torch, original, tied, scaled, experts, file_size)
            tokens = os.path.join(folder, "tokens.bin")
            window, validation = write_tokens(torch, tokens)
            expected = check_gpt2.validation_loss(torch, model, validation)
            state = load_tensors(safetensors, original)
            for strategy, ranks in (("single", []), ("fsdp", ["mesh.dp=2"]), ("tp", ["mesh.tp=2"]),
                                    ("layerwise", ["mesh.pp=2"])):
                out, loss = run(binaries, strategy, ranks, folder, original, tokens, tied, scaled, experts, 1e-30)
                check(f"{kind}, {strategy}: validation loss {loss:.9g}, transformers {expected:.9g}",
                      math.isclose(loss, expected, rel_tol=2e-6))
                exported = os.path.join(folder, f"exported_{strategy}")
                export(binaries, out, exported)
                ours = load_tensors(safetensors, exported)
                check(f"{kind}, {strategy}: exported tensors have the bits of the original",
                      ours.keys() == state.keys() and all(torch.equal(ours[name], state[name]) for name in ours))
            again = transformers.AutoModelForCausalLM.from_pretrained(exported).eval()
            ids = torch.arange(2 * CONTEXT).reshape(2, CONTEXT) * 5 % VOCABULARY
            with torch.no_grad():
                check(f"{kind}: from_pretrained of the export gives the same logits",
                      torch.equal(again(ids).logits, model(ids).logits))

            check_gpt2.write_bytes_vocabulary(folder)
            prompt = b"LLM"
            text = subprocess.run(
                [os.path.join(binaries, "tools/generate/generate"), f"--weights={original}", f"--bpe={folder}",
                 f"--prompt={prompt.decode()}", "--tokens=60", "--top_k=1"],
                check=True, stdout=subprocess.PIPE).stdout
            check(f"{kind}: greedy text is that of transformers",
                  text == check_gpt2.greedy_bytes(torch, model, prompt, 60) + b"\n")

            out, _ = run(binaries, "single", [], folder, original, tokens, tied, scaled, experts, 1.0)
            moved_folder = os.path.join(folder, "moved")
            export(binaries, out, moved_folder)
            moved = load_tensors(safetensors, moved_folder)
            worst = 0.0
            for name, gradient in gradients_of(torch, safetensors, model, window,
                                               os.path.join(folder, "gradients")).items():
                # The difference of two weights is rounded as they are.
                rounding = 2.0**-23 * state[name].abs().max().item()
                error = (state[name] - moved[name] - gradient).abs().max().item()
                worst = max(worst, (error - rounding) / gradient.abs().max().item())
            check(f"{kind}: gradients agree within {worst:.2g} of each tensor's largest", worst < 2e-5)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
