#!/usr/bin/env python3
"""Holds our files of GPT-2 weights to Hugging Face's transformers, on a small random model:

  ./bazelw build //strategies/... //tools/language_model:export //tools/generate
  python3 tools/language_model/check_gpt2.py

1. Weights that transformers have saved load by model.init under several strategies, and give the validation loss that
   GPT2LMHeadModel computes on the same windows.
2. What export writes has the very bits of what was loaded, by the safetensors package, and from_pretrained makes a
   model of it with the same logits.
3. generate's greedy text is that of GPT2LMHeadModel.

Needs the Python packages torch, transformers and safetensors; says so and ends with exit code 2 where one is missing. No
part of CI.
"""
import argparse
import importlib
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

VOCABULARY, CONTEXT = 257, 24
PACKAGES = ("torch", "transformers", "safetensors.torch")


def missing_packages():
    missing = []
    for package in PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError:
            missing.append(package.split(".")[0])
    return missing


def make_model(transformers, torch, folder):
    """A GPT-2 far from its start, so that mistakes show, saved in `folder`."""
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=48, n_layer=3, n_head=4,
        bos_token_id=None, eos_token_id=None)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    return model


def write_tokens(torch, path):
    """A file as core/data/token_file.h describes it; returns the tokens for validation."""
    tokens = torch.randint(0, VOCABULARY, (2000,), generator=torch.Generator().manual_seed(2)).tolist()
    train = 1000
    with open(path, "wb") as file:
        file.write(b"lstokens" + struct.pack("<IIQQQ", 1, 2, VOCABULARY, len(tokens), train) + bytes(24))
        file.write(struct.pack(f"<{len(tokens)}H", *tokens))
    return tokens[train:]


def validation_loss(torch, model, tokens):
    windows = (len(tokens) - 1) // CONTEXT
    total = 0.0
    with torch.no_grad():
        for i in range(windows):
            window = torch.tensor(tokens[i * CONTEXT:i * CONTEXT + CONTEXT + 1])
            logits = model(window[None, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, window[1:]).item()
    return total / windows


def train_not_at_all(binaries, strategy, ranks, folder, weights, tokens):
    """A run of one step whose learning rate moves nothing; returns its validation loss."""
    config = os.path.join(folder, "workload.toml")
    with open(config, "w") as file:
        file.write(f"""name = "check_gpt2"
[train]
steps = 1
[batch]
size = 4
[model]
kind = "transformer"
layers = 3
heads = 4
width = 48
[data]
kind = "tokens"
path = "{tokens}"
context = {CONTEXT}
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 1e-30
[validation]
batch_size = 2
[run]
threads = 1
""")
    out = os.path.join(folder, strategy)
    command = [os.path.join(binaries, "strategies", strategy, "main"), "--config", config, "--out", out,
               "--set", f"model.init={weights}"]
    for assignment in ranks:
        command += ["--set", assignment]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "summary.json")) as file:
        return out, json.load(file)["validation_loss"]


def write_bytes_vocabulary(folder):
    """Byte pairs without a merge: token i is byte i, and 256 ends a document."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    others = [b for b in range(256) if b not in printable]
    tokens = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    with open(os.path.join(folder, "encoder.json"), "w") as file:
        json.dump(tokens | {"<|endoftext|>": 256}, file)
    with open(os.path.join(folder, "vocab.bpe"), "w") as file:
        file.write("#version: 0.2\n")


def greedy_bytes(torch, model, prompt, count):
    text = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            token = model(torch.tensor([text[-CONTEXT:]])).logits[0, -1].argmax().item()
            if token == 256:
                break
            text.append(token)
    return bytes(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", help="where Bazel has put the programs")
    binaries = parser.parse_args().bin
    missing = missing_packages()
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

    with tempfile.TemporaryDirectory() as folder:
        original = os.path.join(folder, "original")
        model = make_model(transformers, torch, original)
        weights = os.path.join(original, "model.safetensors")
        tokens = os.path.join(folder, "tokens.bin")
        expected = validation_loss(torch, model, write_tokens(torch, tokens))
        for strategy, ranks in (("single", []), ("ddp", ["mesh.dp=2"]), ("fsdp", ["mesh.dp=2"]),
                                ("tp", ["mesh.tp=2"]), ("layerwise", ["mesh.pp=2"])):
            run, loss = train_not_at_all(binaries, strategy, ranks, folder, weights, tokens)
            check(f"{strategy}: validation loss {loss:.9g}, transformers {expected:.9g}",
                  math.isclose(loss, expected, rel_tol=2e-6))
            exported = os.path.join(folder, f"exported_{strategy}")
            subprocess.run([os.path.join(binaries, "tools/language_model/export"), f"--run={run}",
                            f"--output={exported}"], check=True, stdout=subprocess.DEVNULL)
            ours = safetensors.torch.load_file(os.path.join(exported, "model.safetensors"))
            state = {name.removeprefix("transformer."): tensor for name, tensor in model.state_dict().items()
                     if name != "lm_head.weight"}
            check(f"{strategy}: exported tensors have the bits of the original",
                  ours.keys() == state.keys() and all(torch.equal(ours[name], state[name]) for name in ours))
        again = transformers.GPT2LMHeadModel.from_pretrained(exported).eval()
        ids = torch.arange(2 * CONTEXT).reshape(2, CONTEXT) * 5 % VOCABULARY
        with torch.no_grad():
            check("from_pretrained of the export gives the same logits",
                  torch.equal(again(ids).logits, model(ids).logits))

        write_bytes_vocabulary(folder)
        prompt = b"GPT"
        text = subprocess.run(
            [os.path.join(binaries, "tools/generate/generate"), f"--weights={weights}", f"--bpe={folder}",
             f"--prompt={prompt.decode()}", "--tokens=60", "--top_k=1"],
            check=True, stdout=subprocess.PIPE).stdout
        check("greedy text is that of transformers", text == greedy_bytes(torch, model, prompt, 60) + b"\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
