#!/usr/bin/env python3
"""Records what //tools/divergence:recorded_test replays: a GPT-2 and a Llama of transformers, without a fault and with six.

  ./bazelw build //strategies/single:main //tools/batches //tools/language_model:export
  python3 tools/divergence/record_torch_probes.py

Writes tools/divergence/recorded/<model>/probes (three steps of one block), and <model>_<number>/probes (one step of two blocks)
for the faults of check_torch_probe.py. Needs torch and transformers.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from check_torch_probe import FAULTS, Batches, train  # noqa: E402

# Each fault is recorded with one of the models.
MODELS = ("gpt2", "llama")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", help="where Bazel has put the programs")
    parser.add_argument("--output", default=os.path.join(HERE, "recorded"))
    args = parser.parse_args()
    torch.set_num_threads(1)

    def prepare(folder, name, layers):
        """Weights and batches that the test's own run has, too."""
        ours, weights, batches = (os.path.join(folder, f"{name}{layers}{what}") for what in ("", "_weights", "_batches"))
        config = os.path.join(args.output, name + ".toml")
        for words in (("strategies/single/main", "--config", config, "--out", ours, "--set", f"model.layers={layers}"),
                      ("tools/batches/batches", "--run", ours, "--output", batches, "--steps", "3"),
                      ("tools/language_model/export", "--run", ours, "--checkpoint", "initial", "--output", weights)):
            subprocess.run([os.path.join(args.bin, words[0]), *words[1:]], check=True, stdout=subprocess.DEVNULL)
        return weights, Batches(batches)

    def record(out, name, weights, batches, **options):
        folder = os.path.join(args.output, out)
        shutil.rmtree(folder, ignore_errors=True)
        train(name, weights, batches, folder, **options)

    with tempfile.TemporaryDirectory() as folder:
        for name in MODELS:
            record(name, name, *prepare(folder, name, 1))
            weights, batches = prepare(folder, name, 2)
            for number, (spoil, _) in enumerate(FAULTS.values()):
                if MODELS[number % len(MODELS)] == name:
                    record(f"{name}_{number}", name, weights, batches, spoil=spoil, steps=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
