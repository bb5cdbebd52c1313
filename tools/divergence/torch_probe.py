"""Probes of a PyTorch program: writes what passes through an nn.Module and its optimizer as Lockstep's own runs do.

  from torch_probe import Batches, TorchProbe

  batches = Batches("/tmp/batches")                       # by //tools/batches
  probe = TorchProbe(model, optimizer, "/tmp/torch", "names/gpt2.json", batches, steps=3)
  for step in range(3):
      with probe.step(step):
          for number, inputs, targets in batches.of(step):
              with probe.micro_batch(number, inputs, targets):
                  loss = ...                               # sum over targets / batches.targets(step)
                  loss.backward()
          probe.gradients()                                # when they are complete, before they are clipped
          probe.number("loss", mean_loss)
          optimizer.step()
          optimizer.zero_grad()

//tools/divergence then compares /tmp/torch with a run of Lockstep, whose weights load_weights(model, names, run) gives to the
model where //tools/language_model:export does not write them. The file of names says which modules and parameters
are which of Lockstep's places; names/ holds those of GPT-2 and Llama of transformers and of ResNet of torchvision.

Works under DistributedDataParallel, FSDP2 (fully_shard) and DTensor: each rank makes its own TorchProbe, after the model is
wrapped, and writes its own files; shards are described by their DTensor. Modules that are recomputed in backward are
recorded once. Needs torch and nothing else. The format is that of core/probe/probe_file.h.
"""
import contextlib
import fnmatch
import json
import os
import re
import struct

import torch

FORMAT = "lockstep.probes.1"
DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64",
          torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8"}
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # of as many bytes
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module.")  # and DDP's "module." in front


class ProbeError(Exception):
    """What a user can mend: the message says what, where, and what to do."""


# --- hashes -------------------------------------------------------------------------------------------------------------


def _signed(number):
    """The int64 with the bits of this uint64: torch computes modulo 2^64 in int64."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _shift(x, bits):
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x):
    x = (x ^ _shift(x, 30)) * _signed(0xbf58476d1ce4e5b9)
    x = (x ^ _shift(x, 27)) * _signed(0x94d049bb133111eb)
    return x ^ _shift(x, 31)


_INDEX_STEP = _signed(0x9e3779b97f4a7c15)


def _hex(number):
    return f"{number % (1 << 64):016x}"


def checksum(text):
    """The checksum of a row, as core/base/checksum.h computes it."""
    data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(torch.int64)
    return _hex(_mix((torch.arange(len(data)) + 1) * _INDEX_STEP + data).sum().item())


def digest(tensor, indices):
    """Hash, norm and extremes of a contiguous tensor on the CPU whose elements have these indices in the whole."""
    size = tensor.element_size()
    bits = tensor.flatten().view(INTEGERS[size]).to(torch.int64)
    if size < 8:
        bits = bits & ((1 << (8 * size)) - 1)
    first = _mix(_mix(indices + _INDEX_STEP) ^ bits)
    second = _mix(first + _signed(0xd1b54a32d192ed03))
    values = tensor.flatten().double()
    finite = values[torch.isfinite(values)]
    return {"hash": _hex(first.sum().item()) + _hex(second.sum().item()),
            "squares": finite.square().sum().item(),
            "largest": finite.abs().max().item() if len(finite) else 0.0,
            "not_finite": len(values) - len(finite)}


# --- which elements a rank has ------------------------------------------------------------------------------------------


class Held:
    """Some elements of a whole tensor: those at the indices of `ranges`, (first, count), along `dimension`; None: all."""

    def __init__(self, whole, dimension=None, ranges=()):
        self.whole, self.dimension, self.ranges = list(whole), dimension, [list(each) for each in ranges if each[1] > 0]
        if dimension is not None and self.ranges == [[0, self.whole[dimension]]]:
            self.dimension, self.ranges = None, []

    def indices(self):
        """Index of each held element in the whole tensor, row-major."""
        count = 1
        for extent in self.whole:
            count *= extent
        if self.dimension is None:
            return torch.arange(count)
        along = torch.cat([torch.arange(first, first + extent) for first, extent in self.ranges])
        return torch.arange(count).reshape(self.whole).index_select(self.dimension, along).flatten()

    def text(self):
        """As ToText of core/checkpoint/tensor_slice.h; None: the whole."""
        if self.dimension is None:
            return None
        return json.dumps({"dimension": self.dimension, "ranges": self.ranges, "whole": self.whole}, separators=(",", ":"))


def _shard_of(tensor):
    """(local tensor, whole shape, dimension, first index) of a tensor, which may be a DTensor. One that is divided in more
    than one way is gathered from all ranks."""
    if not hasattr(tensor, "placements"):
        return tensor, list(tensor.shape), None, 0
    sharded = [i for i, each in enumerate(tensor.placements) if each.is_shard() and tensor.device_mesh.size(i) > 1]
    is_partial = any(each.is_partial() for each in tensor.placements)
    if len(sharded) != 1 or is_partial or not hasattr(tensor.placements[sharded[0]], "dim"):
        whole = tensor.full_tensor()
        return whole, list(whole.shape), None, 0
    dimension = tensor.placements[sharded[0]].dim
    ranks, rank = tensor.device_mesh.size(sharded[0]), tensor.device_mesh.get_local_rank(sharded[0])
    extent = tensor.shape[dimension]
    chunk = -(-extent // ranks)
    return tensor.to_local(), list(tensor.shape), dimension, min(extent, rank * chunk)


def _put_together(pieces, transposed):
    """One tensor of ours from theirs, one below the other: (local tensor, Held). Convolutions: channels come last."""
    locals_, ranges, rows, dimension, width = [], [], 0, None, None
    for tensor in pieces:
        local, whole, split, first = _shard_of(tensor)
        if local.dim() == 4:
            local, whole = local.permute(0, 2, 3, 1), [whole[i] for i in (0, 2, 3, 1)]
            split = None if split is None else (0, 3, 1, 2)[split]
        if transposed:
            local, whole, split = local.t(), whole[::-1], None if split is None else 1 - split
        dimension = split
        if split == 0:
            ranges.append((rows + first, local.shape[0]))
        elif split is not None:
            ranges = [(first, local.shape[split])]
        rows, width = rows + whole[0], whole[1:]
        locals_.append(local)
    return torch.cat(locals_), Held([rows] + width, dimension, ranges)


# --- batches ------------------------------------------------------------------------------------------------------------


class Batches:
    """The micro-batches that //tools/batches has written."""

    def __init__(self, folder):
        self.folder = folder
        names = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors")) if os.path.isdir(folder) else []
        if not names:
            raise ProbeError(f"{folder}: holds no batches; write them with ./bazelw run //tools/batches")
        self.header = json.loads(self._read(names[0])[0]["__metadata__"]["lockstep.batches"])

    def _read(self, name):
        path = os.path.join(self.folder, name)
        with open(path, "rb") as file:
            data = file.read()
        if len(data) < 8 or len(data) < 8 + struct.unpack("<Q", data[:8])[0]:
            raise ProbeError(f"{path}: was cut short; write the batches again")
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        if "lockstep.batches" not in header.get("__metadata__", {}):
            raise ProbeError(f"{path}: is no file of //tools/batches")
        return header, data[8 + length:]

    def of(self, step):
        """(number, inputs, targets) of each micro-batch of the step: int64 [samples, time], or images and classes."""
        name = f"step-{step:06d}.safetensors"
        if not os.path.exists(os.path.join(self.folder, name)):
            raise ProbeError(f"{self.folder}: has no batches of step {step + 1}; write more with --steps")
        header, data = self._read(name)

        def load(tensor):
            begin, end = header[tensor]["data_offsets"]
            dtype = {"I32": torch.int32, "F32": torch.float32}[header[tensor]["dtype"]]
            loaded = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(header[tensor]["shape"])
            return loaded.long() if dtype == torch.int32 else loaded

        numbers = sorted(int(tensor.split(".")[1]) for tensor in header if tensor.startswith("inputs."))
        return [(number, load(f"inputs.{number}"), load(f"targets.{number}")) for number in numbers]

    def targets(self, step):
        """How many targets the step has: what its summed loss is divided by."""
        return sum(targets.numel() for _, _, targets in self.of(step))


# --- names --------------------------------------------------------------------------------------------------------------


def _theirs(name):
    """A name without what wrappers put into it."""
    for wrapper in WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


class Names:
    """A file of names, spelled out for a model: `passes`, by place, and `parameters`, by place."""

    def __init__(self, path, modules, parameters):
        try:
            with open(path) as file:
                data = json.load(file)
            self.passes = self._expand(path, data["places"], "modules", modules)
            self.parameters = self._expand(path, data["parameters"], "parameters", parameters)
            self.optimizer = data["optimizer"]
        except (OSError, KeyError, json.JSONDecodeError) as error:
            raise ProbeError(f"{path}: is no file of names of torch_probe: {error!r}") from error

    @staticmethod
    def _expand(path, entries, key, known):
        """Fills in {i} and {j} with all numbers for which the model has what is named."""
        expanded = {}
        for entry in entries:
            pattern = re.escape(entry[key][0]).replace(r"\{i\}", r"(?P<i>\d+)").replace(r"\{j\}", r"(?P<j>\d+)")
            found = [match.groupdict() for match in (re.fullmatch(pattern, name) for name in known) if match]
            if not found and not entry.get("optional"):
                raise ProbeError(f"{path}: '{entry[key][0]}' names nothing in the model, which has "
                                 f"{', '.join(list(known)[:4])}, ...; give the file of names of this model")
            for numbers in found:
                names = [re.sub(r"\{(\w)\}", lambda m, n=numbers: n[m[1]], name) for name in entry[key]]
                missing = [name for name in names if name not in known]
                if missing:
                    raise ProbeError(f"{path}: '{missing[0]}' names nothing in the model")
                place = re.sub(r"\{(\w)\}", lambda m, n=numbers: n[m[1]], entry["place"])
                expanded[place] = {**entry, key: names}
        return expanded


# --- weights ------------------------------------------------------------------------------------------------------------


def load_weights(model, names, run):
    """Gives a model the weights, and estimates of batch normalisation, that Lockstep's run in the folder `run` started from:
    those before the first step that it has probed, with values, on one rank. To be called before the model is wrapped."""
    folder = os.path.join(run, "probes")
    files = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl")) if os.path.isdir(folder) else []
    if not files:
        raise ProbeError(f"{folder}: holds no probes; record them with --set probe.steps=1 --set probe.values=true")
    path = os.path.join(folder, files[0])
    with open(path) as file:
        rows = [json.loads(line.split(" ", 1)[1]) for line in file]
    state = {row["place"]: row for row in rows if row.get("kind") == "state before"}
    tensors = {_theirs(name): tensor for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    values = path.removesuffix(".jsonl") + ".values"
    for place, entry in Names(names, {_theirs(name): module for name, module in model.named_modules()},
                              tensors).parameters.items():
        row = state.get(place)
        if row is None or "slice" in row or "values_at" not in row:
            raise ProbeError(f"{path}: does not have the whole of {place}, with values; record the run under the strategy "
                             "single, with --set probe.values=true and all places")
        count = 1
        for extent in row["shape"]:
            count *= extent
        with open(values, "rb") as file:
            file.seek(row["values_at"])
            ours = torch.frombuffer(bytearray(file.read(4 * count)), dtype=torch.float32).reshape(row["shape"])
        _take_apart(ours, [tensors[name] for name in entry["parameters"]], entry.get("transposed"))


def _take_apart(ours, pieces, transposed):
    """The reverse of _put_together, for tensors that are whole."""
    first = 0
    for tensor in pieces:
        rows = tensor.shape[1] if transposed else tensor.shape[0]
        piece = ours[first:first + rows]
        first += rows
        if tensor.dim() == 4:
            piece = piece.permute(0, 3, 1, 2)
        with torch.no_grad():
            tensor.copy_(piece.t() if transposed else piece)


# --- probe --------------------------------------------------------------------------------------------------------------


class _Writer:
    """The two files of one rank and step, which appear when all is written."""

    def __init__(self, folder, header, with_values):
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, f"step-{header['step']:06d}.rank-{header['rank']:05d}")
        self.rows = open(self.path + ".jsonl.part", "w")
        self.values = open(self.path + ".values.part", "wb") if with_values else None
        self.records = self.bytes = 0
        self._row(header)

    def _row(self, row):
        text = json.dumps(row, separators=(",", ":"))
        self.rows.write(f"{checksum(text)} {text}\n")

    def add(self, kind, place, number, tensor, held):
        tensor = tensor.detach().contiguous().cpu()
        if tensor.numel() == 0:
            return
        row = {"kind": kind, "place": place}
        if number is not None:
            row["number"] = number
        row |= {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}
        if held.text():
            row["slice"] = held.text()
        row |= digest(tensor, held.indices())
        if self.values is not None:
            row["values_at"] = self.bytes
            self.bytes += self.values.write(tensor.flatten().view(torch.uint8).numpy().tobytes())
        self.records += 1
        self._row(row)

    def commit(self):
        self._row({"records": self.records, "value_bytes": self.bytes})
        for file, ending in ((self.values, ".values"), (self.rows, ".jsonl")):
            if file is not None:
                file.close()
                os.replace(self.path + ending + ".part", self.path + ending)


class TorchProbe:
    """Watches a model and its optimizer. `places`: patterns of Lockstep's places; `values`: the tensors themselves too, which
    comparisons with other programs need."""

    def __init__(self, model, optimizer, folder, names, batches, *, steps=3, first_step=0, places=("*",), values=True):
        is_distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        self.rank = torch.distributed.get_rank() if is_distributed else 0
        self.ranks = torch.distributed.get_world_size() if is_distributed else 1
        self.optimizer, self.batches, self.values = optimizer, batches, values
        self.folder = os.path.join(folder, "probes")
        self.probed = range(first_step, first_step + steps)
        self.patterns = places
        self.modules = {_theirs(name): module for name, module in model.named_modules()}
        # Running estimates, too: they have no gradients and no optimizer state.
        self.weights = {_theirs(name): tensor for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        self.names = Names(names, self.modules, self.weights)
        self.writer = self.number_ = None
        self.pieces = {}
        self.has_begun = False
        for place, entry in self.names.passes.items():
            if self._is_probed(place):
                self._watch(place, entry)

    # What a training loop calls.

    @contextlib.contextmanager
    def step(self, step):
        if step in self.probed:
            self.writer = _Writer(self.folder, {
                "format": FORMAT, "program": f"torch {torch.__version__}", **self.batches.header, "step": step,
                "rank": self.rank, "ranks": self.ranks}, self.values)
            if not self.has_begun:
                self._state("state before")
            self.has_begun = True
        yield
        if self.writer is not None:
            self._state("state after")
            self.writer.commit()
            self.writer = None

    @contextlib.contextmanager
    def micro_batch(self, number, inputs, targets):
        self.number_ = number
        if self.writer is not None:
            for place, tensor in (("batch.inputs", inputs), ("batch.targets", targets)):
                if tensor.dim() == 4:  # images, whose channels come last in Batches
                    tensor = tensor.permute(0, 3, 1, 2)
                ids = tensor.dtype == torch.int64
                self._observe("forward", place, tensor.to(torch.int32) if ids else tensor)
        self.pieces = {}
        yield
        self.number_ = None

    def gradients(self):
        if self.writer is None:
            return
        for place, entry in self.names.parameters.items():
            tensors = [self.weights[name].grad for name in entry["parameters"]]
            if self._is_probed(place) and all(tensor is not None for tensor in tensors):
                self.writer.add("gradient", place, None, *_put_together(tensors, entry.get("transposed")))

    def number(self, name, value):
        if self.writer is not None:
            self.writer.add("number", name, None, torch.tensor([float(value)], dtype=torch.float64), Held([1]))

    # What hooks call.

    def _is_probed(self, place):
        return any(fnmatch.fnmatchcase(place, pattern) or place.startswith(pattern + ".") for pattern in self.patterns)

    def _watch(self, place, entry):
        count = len(entry["modules"])
        for index, name in enumerate(entry["modules"]):
            module, take = self.modules[name], entry["take"]

            def observe(tensor, index=index, module=module, take=take):
                # What checkpointing computes again in backward has been seen.
                if self.writer is None or self.number_ is None or torch._C._current_graph_task_id() != -1:
                    return
                self._gather("forward", place, index, count, tensor, module, take)
                if tensor.requires_grad:
                    tensor.register_hook(
                        lambda gradient: self._gather("backward", place, index, count, gradient, module, take))

            if take == "input":
                module.register_forward_pre_hook(lambda _, args, kwargs, see=observe: see(
                    args[0] if args else next(iter(kwargs.values()))), with_kwargs=True)
            else:
                module.register_forward_hook(
                    lambda _, args, output, see=observe: see(output[0] if isinstance(output, tuple) else output))

    def _gather(self, kind, place, index, count, tensor, module, take):
        """Waits for all modules whose outputs together are one of ours."""
        if self.writer is None:
            return
        pieces = self.pieces.setdefault((kind, place), {})
        pieces[index] = self._features(tensor.detach(), module, take)
        if len(pieces) < count:
            return
        del self.pieces[kind, place]
        parts = [pieces[i] for i in range(count)]
        ranges, features = [], 0
        for local, first, whole in parts:
            ranges.append((features + first, local.shape[-1]))
            features += whole
        joined = torch.cat([local for local, _, _ in parts], dim=-1) if count > 1 else parts[0][0]
        self._observe(kind, place, joined, features, ranges if joined.shape[-1] != features else None)

    @staticmethod
    def _features(tensor, module, take):
        """(tensor, first feature, features of the whole). Features that ranks divide are told by the module's weight."""
        if hasattr(tensor, "placements"):
            tensor = tensor.full_tensor()
        weight = getattr(module, "weight", None)
        if weight is not None and hasattr(weight, "placements") and weight.dim() == 2:
            local, whole, split, first = _shard_of(weight)
            along = 0 if take == "output" else 1
            if split == along and tensor.shape[-1] == local.shape[along] != whole[along]:
                return tensor, first, whole[along]
        return tensor, 0, tensor.shape[-1]

    def _observe(self, kind, place, tensor, features=None, ranges=None):
        """Writes a tensor of a pass as [rows, features], rows by token leaf, sample and position."""
        if tensor.dim() == 4:  # images: channels last
            tensor, features = tensor.permute(0, 2, 3, 1), None
        elif tensor.dim() >= 2 and tensor.dtype.is_floating_point or tensor.dim() == 2:
            tensor = self._in_order_of_leaves(tensor)
        width = tensor.shape[-1] if tensor.dtype.is_floating_point and tensor.dim() > 1 else 1
        rows = tensor.reshape(-1, width)
        held = Held([rows.shape[0], features or width], 1 if ranges else None, ranges or ())
        self.writer.add(kind, place, self.number_, rows, held)

    def _in_order_of_leaves(self, tensor):
        """[samples, time, ...] in the order of core/base/token_order.h."""
        leaves = self.batches.header["tokens"]
        if leaves == 1:
            return tensor
        chunks = tensor.chunk(2 * leaves, dim=1)
        return torch.cat([torch.cat([chunks[i], chunks[2 * leaves - 1 - i]], dim=1) for i in range(leaves)])

    def _state(self, kind):
        state = {_theirs_of: self.optimizer.state.get(parameter, {}) for _theirs_of, parameter in self.weights.items()}
        for place, entry in self.names.parameters.items():
            if not self._is_probed(place):
                continue
            names, transposed = entry["parameters"], entry.get("transposed")
            self.writer.add(kind, place, None, *_put_together([self.weights[name].detach() for name in names], transposed))
            for theirs, ours in self.names.optimizer.items():
                tensors = [state[name].get(theirs) for name in names]
                if all(tensor is not None for tensor in tensors):
                    self.writer.add(kind, f"optimizer.{ours}.{place}", None, *_put_together(tensors, transposed))
