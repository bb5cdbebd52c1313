#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "core/tensor/dtype.h"
#include "foresight/measurements.h"

namespace lockstep {

// A machine to plan for, in few numbers, as a TOML file has them (foresight/clusters). Seconds,
// bytes, operations, and these a second.
struct Cluster {
  std::string name;

  struct Device {
    double memory = 0;                  // bytes
    double bandwidth = 0;               // of the memory, read and written together
    std::map<DType, double> peak = {};  // operations a second of dense matrix products
    int processors = 1;                 // that share a product's tiles: SMs, or cores
    double launch = 0;                  // of a kernel from the host, where the dialect says nothing
  } device;

  struct Node {
    int devices = 1;
    double link_bandwidth = 0;  // of one device to the others, in one direction
    double link_latency = 0;
  } node;

  struct Network {
    int nodes = 1;                // at most
    double bandwidth = 0;         // of one node, over all of its adapters, in one direction
    int adapters = 0;             // of one node, which its devices share; 0: one for each device
    double latency = 0;           // from node to node
    double oversubscription = 1;  // of the switches above those that nodes hang on
    int nodes_a_switch = 0;       // that reach each other at full bandwidth; 0: all
  } network;

  // What was fitted or measured, by the names that the models of time have for it
  // (device_time.h, network_time.h); "fitted.product_efficiency" and the like.
  std::map<std::string, double> fitted = {};

  // What //tools/plan:calibrate measured on the machine at hand. If there are measurements, kernels
  // and communication take their times from them.
  Measurements measured = {};

  int devices() const { return node.devices * network.nodes; }
};

// InvalidArgument names file, key and what is wrong: a bandwidth of zero, an unknown unit, a key
// that nobody knows. Fitted numbers may have any name (plan_cluster.h).
absl::StatusOr<Cluster> ReadCluster(const std::string& path);

// The text of a file that ReadCluster reads.
std::string ToToml(const Cluster& cluster);

}  // namespace lockstep
