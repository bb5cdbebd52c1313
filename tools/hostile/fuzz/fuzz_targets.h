// What reads input from outside, each as one function of the bytes that a fuzzer mutates.
//
// A function hands the bytes to the programs' own parser, as the contents of a file, and uses what
// was accepted. It returns the error that a user would see. What it states of an accepted input
// (that it reads the same once written) is a CHECK, which a fuzzer sees as a crash.

#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace lockstep {

// A safetensors file: its header, checksums and tensors.
absl::Status FuzzSafetensors(std::string_view input);

// A configuration. Lines that begin with "--set " are what a command line lays over the file of the
// other lines.
absl::Status FuzzConfig(std::string_view input);

// A file of token ids.
absl::Status FuzzTokenFile(std::string_view input);

// CIFAR-10 in its binary version. The first byte is the number of records of data_batch_1.bin; the
// records behind these are test_batch.bin.
absl::Status FuzzCifar10(std::string_view input);

// The files encoder.json and vocab.bpe and a text to encode, each but the last ended by a zero
// byte.
absl::Status FuzzBytePairs(std::string_view input);

// A schedule of a pipeline as CSV.
absl::Status FuzzSchedule(std::string_view input);

// A losses.csv, as tools read it and as a resumed run goes on with it.
absl::Status FuzzLosses(std::string_view input);

// A description of a cluster.
absl::Status FuzzCluster(std::string_view input);

}  // namespace lockstep
